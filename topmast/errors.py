"""What can go wrong in a call, as exceptions that carry what the server said about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, cast

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from topmast.diagnoses import Diagnosis, diagnosis_from_proto
from topmast.transport_trouble import transport_trouble
from topmast.v1 import workload_pb2

if TYPE_CHECKING:
    from topmast.workloads import Submission

_DETAILS_KEY = "grpc-status-details-bin"
_BATCH_INDEX = re.compile(r"^requests\[(\d+)\]")
_SHOWN_VIOLATIONS = 3
_UNHEALTHY = "backend unhealthy"
"""What gRPC says when servers answer and none of several says that it serves."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that was wrong. `field` is its path in the request, or the subject of a broken precondition."""

    field: str
    description: str

    def __str__(self) -> str:
        return f"{self.field}: {self.description}" if self.field else self.description


class TopmastError(Exception):
    """A call failed. `str(error)` is one sentence, with every violation that the server named.

    `retry_after_s` is the server's advice when it gave one. `diagnosis` says, for programs, why a submission was
    refused that no region could ever host: the reason, the numbers, and the region that comes closest.
    """

    usual_code: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN

    def __init__(
        self,
        sentence: str,
        *,
        code: grpc.StatusCode | None = None,
        violations: tuple[Violation, ...] = (),
        retry_after_s: float | None = None,
        diagnosis: Diagnosis | None = None,
    ) -> None:
        self.sentence = sentence
        self.code = code or self.usual_code
        self.violations = violations
        self.retry_after_s = retry_after_s
        self.diagnosis = diagnosis
        super().__init__(sentence)

    def __str__(self) -> str:
        # A service cuts long descriptions, and marks that.
        unsaid = [
            str(violation)
            for violation in self.violations
            if violation.description.removesuffix("...") not in self.sentence
        ]
        return "; ".join([self.sentence, *unsaid])

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """The same error, with the fields of its violations called otherwise, also where the sentences speak of them."""
        names = {violation.field: rename(violation.field) for violation in self.violations if violation.field}
        if not names:
            return self
        # One field may be the beginning of another: the longest that stands in a place is meant there. A field of one
        # word is one only before its colon: elsewhere it may be a word of the sentence.
        longest_first = sorted(names, key=lambda field: (-len(field), field))
        fields = "|".join(re.escape(field) + ("(?=:)" if field.isidentifier() else "") for field in longest_first)
        standing = re.compile(rf"(?<![\w.\]])(?:{fields})(?![\w\[]|\.\w)")

        def reworded(text: str) -> str:
            return standing.sub(lambda match: names[match.group()], text)

        return type(self)(
            reworded(self.sentence),
            code=self.code,
            violations=tuple(
                Violation(names.get(violation.field, violation.field), reworded(violation.description))
                for violation in self.violations
            ),
            retry_after_s=self.retry_after_s,
            diagnosis=self.diagnosis,
        )


class InvalidArgumentError(TopmastError):
    """Something in the request is wrong; `violations` names every bad field."""

    usual_code = grpc.StatusCode.INVALID_ARGUMENT

    @classmethod
    def of(cls, problems: Iterable[tuple[str, str]]) -> Self:
        """The error that names fields, each with what is wrong with it."""
        violations = tuple(Violation(field, description) for field, description in problems)
        return cls("; ".join(map(str, violations[:_SHOWN_VIOLATIONS])), violations=violations)

    def under(self, path: str) -> Self:
        """The same error about a part of something larger: `path` comes before the name of each field."""
        return self.of((f"{path}{violation.field}", violation.description) for violation in self.violations)


class WorkingDirectoryError(InvalidArgumentError):
    """A folder cannot be packed as a working directory: it is too large, or something in it cannot be read or leads out of it."""


class NotFoundError(TopmastError):
    """There is no such workload, region, machine, ..."""

    usual_code = grpc.StatusCode.NOT_FOUND


class NotPlacedYetError(NotFoundError):
    """There are no logs yet: the workload waits for its first place."""


class AlreadyExistsError(TopmastError):
    """The idempotency key was used before, with another body."""

    usual_code = grpc.StatusCode.ALREADY_EXISTS


class PreconditionError(TopmastError):
    """The request is right, but not possible as things stand: `violations` says what stands in the way."""

    usual_code = grpc.StatusCode.FAILED_PRECONDITION


class ResourceExhaustedError(TopmastError):
    """Too much at once: the message is too large, or the server has too much to do."""

    usual_code = grpc.StatusCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(TopmastError):
    """Topmast does not know who is calling: no token, or one that has expired, was revoked, or is another service's."""

    usual_code = grpc.StatusCode.UNAUTHENTICATED


class NotAllowedError(TopmastError):
    """Topmast knows who is calling, and they may not do this."""

    usual_code = grpc.StatusCode.PERMISSION_DENIED


class UnavailableError(TopmastError):
    """Topmast cannot do it at the moment, also after retries."""

    usual_code = grpc.StatusCode.UNAVAILABLE


class UnreachableError(UnavailableError):
    """No server answers at the address."""


class LogBrokeOffError(UnavailableError):
    """A log broke off that cannot be taken up again where it was, because only its last lines were asked for."""


class DeadlineError(TopmastError):
    """No answer in time. Whether the call had an effect is unknown; repeating it is safe."""

    usual_code = grpc.StatusCode.DEADLINE_EXCEEDED


class PartlySubmittedError(TopmastError):
    """A batch of `submit_many` failed after others had been accepted: `accepted` are the workloads of those.

    What failed is chained (`__cause__`). Indices in `violations` count from the start of the whole submission.
    """

    def __init__(self, failure: TopmastError, accepted: tuple[Submission, ...]) -> None:
        self.accepted = accepted
        self.failure = failure
        super().__init__(
            f"{failure.sentence} (the first {len(accepted)} workloads were accepted)",
            code=failure.code,
            violations=failure.violations,
            retry_after_s=failure.retry_after_s,
            diagnosis=failure.diagnosis,
        )

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """The same error, with the fields of its violations called otherwise."""
        return type(self)(self.failure.renamed(rename), self.accepted)


_KINDS: tuple[type[TopmastError], ...] = (
    InvalidArgumentError,
    NotFoundError,
    AlreadyExistsError,
    PreconditionError,
    ResourceExhaustedError,
    UnauthenticatedError,
    NotAllowedError,
    UnavailableError,
    DeadlineError,
)
_BY_CODE = {kind.usual_code: kind for kind in _KINDS} | {
    grpc.StatusCode.OUT_OF_RANGE: InvalidArgumentError,
    grpc.StatusCode.ABORTED: PreconditionError,
}


def error_from_call(error: grpc.RpcError, peer: str) -> TopmastError:
    """The exception for a failed call, with what its google.rpc details say. `peer` is the address it was made to."""
    code = error.code()
    sentence = error.details() or code.name
    # Pairs, whatever the two kinds of client call them.
    metadata = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    packed = next((value for key, value in metadata if key == _DETAILS_KEY), b"")
    details = _read_details(packed if isinstance(packed, bytes) else packed.encode())
    kind = _BY_CODE.get(code, TopmastError)
    if code is grpc.StatusCode.UNAVAILABLE and not packed and _UNHEALTHY in sentence:
        kind, sentence = (
            UnavailableError,
            f"{peer} serves nobody at the moment: no server leads, or its database is away",
        )
    elif code is grpc.StatusCode.UNAVAILABLE and not packed and (why := transport_trouble(sentence)):
        kind, sentence = UnreachableError, f"{peer}: {why}"
    elif code is grpc.StatusCode.UNAVAILABLE and not packed:
        # Said by gRPC: our servers always add details.
        kind, sentence = UnreachableError, f"{peer} does not answer ({sentence})"
    elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
        sentence = f"{peer} did not answer in time"
    return kind(
        sentence,
        code=code,
        violations=details.violations,
        retry_after_s=details.retry_after_s,
        diagnosis=details.diagnosis,
    )


class _Details(NamedTuple):
    """What the server says beside its code and its sentence."""

    violations: tuple[Violation, ...] = ()
    retry_after_s: float | None = None
    diagnosis: Diagnosis | None = None


def _read_details(packed: bytes) -> _Details:
    violations: list[Violation] = []
    retry_after_s: float | None = None
    diagnosis: Diagnosis | None = None
    try:
        status = status_pb2.Status.FromString(packed)
    except DecodeError:
        # Something between us and the server changed them; the code and the sentence still stand.
        return _Details()
    for detail in status.details:
        bad_request = error_details_pb2.BadRequest()
        precondition = error_details_pb2.PreconditionFailure()
        retry = error_details_pb2.RetryInfo()
        why = workload_pb2.Diagnosis()
        if detail.Unpack(bad_request):
            violations += [Violation(bad.field, bad.description) for bad in bad_request.field_violations]
        elif detail.Unpack(precondition):
            violations += [Violation(broken.subject, broken.description) for broken in precondition.violations]
        elif detail.Unpack(retry):
            retry_after_s = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
        elif detail.Unpack(why):
            diagnosis = diagnosis_from_proto(why)
    return _Details(tuple(violations), retry_after_s, diagnosis)


def shift_batch(error: TopmastError, offset: int) -> TopmastError:
    """The same error, with `requests[i]` counted from the start of the whole submission instead of its batch."""
    if not offset:
        return error

    def shifted(match: re.Match[str]) -> str:
        return f"requests[{int(match.group(1)) + offset}]"

    return error.renamed(lambda field: _BATCH_INDEX.sub(shifted, field))
