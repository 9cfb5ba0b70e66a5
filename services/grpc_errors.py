"""How calls fail: canonical codes with google.rpc details, and never a stack trace.

Servicers raise; the interceptor `CanonicalErrors` turns what they raise into a status. An unforeseen one becomes
INTERNAL with an incident id, under which the server's log has the whole story.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NoReturn, TypeVar

import grpc
import structlog
from google.protobuf import any_pb2, duration_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from domain.diagnosis import Diagnosis
from domain.life_cycle import TransitionRefused
from formats.problems import FieldProblem, FormatError
from services.database.errors import DatabaseFull, DatabaseUnavailable
from services.wire.diagnoses import diagnosis_to_proto
from services.wire.malformed_message import MalformedMessage

_RETRY_AFTER_S = 1.0
_ROOM_FOR_VIOLATIONS_BYTES = 3_300
_ROOM_FOR_SENTENCE_BYTES = 3_400
_LONGEST_TEXT = 400
_LONGEST_SENTENCE = 600
"""It travels twice, and every letter beyond ASCII takes six bytes there."""
_SHOWN_SENTENCES = 3

DISK_FULL = "DISK_FULL"
"""The reason of refusals, and the kind of the detail of health."""

DATABASE_IS_FULL = "the disk of the database is full: nothing can be stored until there is room on it again, then this goes on by itself"

_log = structlog.get_logger(__name__)

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


class CallRefused(Exception):
    """A call that fails for a reason that its caller gets to know."""

    def __init__(self, code: grpc.StatusCode, sentence: str, details: Sequence[Message] = ()) -> None:
        self.code = code
        self.sentence = sentence
        self.details = tuple(details)
        super().__init__(sentence)


def _violations(problems: Sequence[FieldProblem]) -> list[error_details_pb2.BadRequest.FieldViolation]:
    """As many as there is room for: details travel in the call's trailer, which gRPC limits to some 8 KiB."""
    violations = []
    room = _ROOM_FOR_VIOLATIONS_BYTES
    for problem in problems:
        violation = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(problem.field), description=_cut(problem.description)
        )
        room -= violation.ByteSize()
        if room < 0:
            break
        violations.append(violation)
    return violations


def _retry_info(after_s: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromMilliseconds(round(after_s * 1000))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def _fitting(sentence: str) -> str:
    """As much of it as there is room for: it travels twice, once in an encoding that takes three bytes for one that is no
    letter of ASCII, and once in base64."""
    room = float(_ROOM_FOR_SENTENCE_BYTES)
    for position, letter in enumerate(sentence):
        size = len(letter.encode(errors="replace"))
        room -= (size if " " <= letter <= "~" and letter != "%" else 3 * size) + size * 4 / 3
        if room < 0:
            return sentence[:position] + "..."
    return sentence


def _cut(text: str, longest: int = _LONGEST_TEXT) -> str:
    return text if len(text) <= longest else text[:longest] + "..."


class InvalidArgument(CallRefused):
    """INVALID_ARGUMENT with a BadRequest that names every bad field."""

    def __init__(self, problems: Sequence[FieldProblem]) -> None:
        shown = "; ".join(_cut(str(problem)) for problem in problems[:_SHOWN_SENTENCES])
        more = f"; and {len(problems) - _SHOWN_SENTENCES} more" if len(problems) > _SHOWN_SENTENCES else ""
        super().__init__(
            grpc.StatusCode.INVALID_ARGUMENT,
            shown + more,
            [error_details_pb2.BadRequest(field_violations=_violations(problems))],
        )

    @staticmethod
    def of(field: str, description: str) -> InvalidArgument:
        return InvalidArgument([FieldProblem(field, description)])


class NotFound(CallRefused):
    """NOT_FOUND with a ResourceInfo."""

    def __init__(self, what: str, name: str, remedy: str = "") -> None:
        named = f" {_cut(name)!r}" if name else ""
        super().__init__(
            grpc.StatusCode.NOT_FOUND,
            _cut(f"there is no {what}{named}{f'; {remedy}' if remedy else ''}", _LONGEST_SENTENCE),
            [error_details_pb2.ResourceInfo(resource_type=what, resource_name=_cut(name))],
        )


class AlreadyExists(CallRefused):
    """ALREADY_EXISTS with a ResourceInfo."""

    def __init__(self, what: str, name: str, sentence: str) -> None:
        super().__init__(
            grpc.StatusCode.ALREADY_EXISTS,
            _cut(sentence, _LONGEST_SENTENCE),
            [error_details_pb2.ResourceInfo(resource_type=what, resource_name=_cut(name), description=_cut(sentence))],
        )


class PreconditionFailed(CallRefused):
    """FAILED_PRECONDITION with a PreconditionFailure: what stands in the way, and of which kind it is.

    With a diagnosis, where there is one: the same for programs.
    """

    def __init__(self, kind: str, subject: str, sentence: str, diagnosis: Diagnosis | None = None) -> None:
        violation = error_details_pb2.PreconditionFailure.Violation(
            type=kind, subject=_cut(subject), description=_cut(sentence)
        )
        super().__init__(
            grpc.StatusCode.FAILED_PRECONDITION,
            _cut(sentence, _LONGEST_SENTENCE),
            [
                error_details_pb2.PreconditionFailure(violations=[violation]),
                *([diagnosis_to_proto(diagnosis)] if diagnosis is not None else []),
            ],
        )


class Unauthenticated(CallRefused):
    """UNAUTHENTICATED: the caller has not shown who it is."""

    def __init__(self, sentence: str) -> None:
        super().__init__(grpc.StatusCode.UNAUTHENTICATED, _cut(sentence, _LONGEST_SENTENCE))


class PermissionDenied(CallRefused):
    """PERMISSION_DENIED: whoever the caller is, it may not do this."""

    def __init__(self, sentence: str) -> None:
        super().__init__(grpc.StatusCode.PERMISSION_DENIED, _cut(sentence, _LONGEST_SENTENCE))


class Unavailable(CallRefused):
    """UNAVAILABLE with a RetryInfo: the same call may succeed a little later."""

    def __init__(self, sentence: str, retry_after_s: float = _RETRY_AFTER_S) -> None:
        super().__init__(grpc.StatusCode.UNAVAILABLE, sentence, [_retry_info(retry_after_s)])


class StandsBy(CallRefused):
    """UNAVAILABLE with a RetryInfo, and an ErrorInfo with the address of who leads: this process takes no calls."""

    def __init__(self, tier: str, leader: str | None) -> None:
        who = f"{leader} leads" if leader else "another one leads"
        super().__init__(
            grpc.StatusCode.UNAVAILABLE,
            f"this {tier} stands by: {who}; call that, or try again",
            [
                _retry_info(_RETRY_AFTER_S),
                error_details_pb2.ErrorInfo(
                    reason="STANDS_BY", domain="topmast", metadata={"leader": leader} if leader else {}
                ),
            ],
        )


class Exhausted(CallRefused):
    """RESOURCE_EXHAUSTED with a RetryInfo: too much at once; the same call may succeed when others have ended."""

    def __init__(self, sentence: str, retry_after_s: float = _RETRY_AFTER_S) -> None:
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence, [_retry_info(retry_after_s)])


class DiskFull(CallRefused):
    """FAILED_PRECONDITION with an ErrorInfo: a disk is full, and nothing more is accepted until somebody has made room."""

    def __init__(self, sentence: str) -> None:
        super().__init__(
            grpc.StatusCode.FAILED_PRECONDITION,
            _cut(sentence, _LONGEST_SENTENCE),
            [
                error_details_pb2.PreconditionFailure(
                    violations=[
                        error_details_pb2.PreconditionFailure.Violation(
                            type=DISK_FULL, subject="disk", description=_cut(sentence)
                        )
                    ]
                ),
                error_details_pb2.ErrorInfo(reason=DISK_FULL, domain="topmast"),
            ],
        )


def as_refusal(error: Exception) -> CallRefused:
    """What the caller gets to know of an error; logs what was not foreseen."""
    match error:
        case CallRefused():
            return error
        case MalformedMessage() | FormatError():
            return InvalidArgument(error.problems)
        case DatabaseFull():
            return DiskFull(DATABASE_IS_FULL)
        case DatabaseUnavailable():
            return Unavailable("the database cannot be reached at the moment; try again")
        case TransitionRefused():
            return PreconditionFailed("STATE", error.workload, str(error))
        case _:
            incident = secrets.token_hex(4)
            _log.error("a call failed", incident=incident, exc_info=error)
            return CallRefused(grpc.StatusCode.INTERNAL, f"internal error; the server's log has it as {incident}")


def status_of(refusal: CallRefused) -> status_pb2.Status:
    """As it travels."""
    status = status_pb2.Status(code=refusal.code.value[0], message=_fitting(refusal.sentence))
    for detail in refusal.details:
        if isinstance(detail, any_pb2.Any):
            status.details.append(detail)
        else:
            status.details.add().Pack(detail)
    return status


def refusal_of(status: status_pb2.Status) -> CallRefused:
    """What `status_of` was given, for a call that was refused in another process."""
    code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
    return CallRefused(code, status.message, tuple(status.details))


async def _abort(context: grpc.aio.ServicerContext[RequestT, ResponseT], refusal: CallRefused) -> NoReturn:
    await context.abort_with_status(rpc_status.to_status(status_of(refusal)))
    raise AssertionError("abort_with_status always raises")


class CanonicalErrors(grpc.aio.ServerInterceptor):
    """Turns whatever a servicer raises into a status."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[RequestT, ResponseT] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[RequestT, ResponseT] | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return handler
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                _guarded_unary(handler.unary_unary),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                _guarded_stream(handler.unary_stream),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(
                _guarded_unary(handler.stream_unary),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                _guarded_stream(handler.stream_stream),
                _lenient(handler.request_deserializer),
                handler.response_serializer,
            )
        return handler


class _Unreadable:
    """Stands for a request that could not be read, with the reason: gRPC itself would call that INTERNAL."""

    def __init__(self, why: Exception) -> None:
        self.why = why


def _lenient(deserialize: Callable[[bytes], Any] | None) -> Callable[[bytes], Any] | None:
    if deserialize is None:
        return None

    def deserialized(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError:
            return _Unreadable(InvalidArgument.of("", "the request cannot be read as a message of its kind"))
        except (CallRefused, MalformedMessage) as refused:
            return _Unreadable(refused)

    return deserialized


def _readable(request: Any) -> Any:
    """The request, or the stream of its parts; raises what it could not be read for."""
    if isinstance(request, _Unreadable):
        raise request.why
    return request if isinstance(request, Message) or not hasattr(request, "__aiter__") else _readable_parts(request)


async def _readable_parts(parts: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for part in parts:
        if isinstance(part, _Unreadable):
            raise part.why
        yield part


def _guarded_unary(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    async def guarded(request: RequestT, context: grpc.aio.ServicerContext[RequestT, ResponseT]) -> ResponseT:
        try:
            response: ResponseT = await behaviour(_readable(request), context)
            return response
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:  # noqa: BLE001 - here ends every error of a call
            await _abort(context, as_refusal(error))

    return guarded


def _guarded_stream(behaviour: Callable[..., Any]) -> Callable[..., Any]:
    """A streaming method yields its responses, or (as the health service does) writes them to its context itself."""
    if not inspect.isasyncgenfunction(behaviour):
        return _guarded_unary(behaviour)

    async def guarded(
        request: RequestT, context: grpc.aio.ServicerContext[RequestT, ResponseT]
    ) -> AsyncIterator[ResponseT]:
        try:
            async for response in behaviour(_readable(request), context):
                yield response
        except (grpc.aio.AbortError, grpc.aio.BaseError):
            raise
        except Exception as error:  # noqa: BLE001 - here ends every error of a call
            await _abort(context, as_refusal(error))

    return guarded
