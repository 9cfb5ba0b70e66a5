"""Submissions: judged one by one, stored many at a time, acknowledged after the commit.

Callers that come at the same time share a transaction (a group commit): one round of writes and one flush to disk
serve them all. A batch call is all or nothing, also when it shares its transaction with others.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from domain.clock import Clock
from domain.identifiers import WorkloadId
from domain.workload import WorkloadSpecification
from domain.workload_array import GREATEST_ELEMENTS, parse_array
from formats.problems import FieldProblem
from formats.workload_checks import check_workload
from global_scheduler.submitted_graph import read_graph
from regional_scheduler.hosting import hosts
from services.database import workload_store
from services.database.dependency_store import DependencyRefused
from services.database.engine import Database
from services.database.rehearsal import rehearse
from services.database.workload_store import (
    IdempotencyConflict,
    NewWorkload,
    NoQuotaAtPriority,
    SubmissionResult,
    UnknownPackages,
    UnknownTenants,
)
from services.global_scheduler.submission_limits import SubmissionLimits
from services.global_scheduler.surroundings import Surroundings
from services.grpc_errors import AlreadyExists, CallRefused, InvalidArgument, PreconditionFailed, Unavailable
from services.metrics.service_metrics import ServiceMetrics
from services.wire.malformed_message import MalformedMessage
from services.wire.workloads import specification_from_proto, with_dependencies
from topmast.v1 import global_scheduler_pb2

GREATEST_BATCH = 1_000
GREATEST_KEY_CHARACTERS = 256
LARGEST_SPECIFICATION_BYTES = 1 << 20
_WORKLOADS_AT_ONCE = 300
"""In one transaction: more would only make every call wait longer."""

_TRANSACTIONS_AT_ONCE = 2
"""While one is being flushed to disk the next is being written."""

_WORTH_ANOTHER_TRANSACTION = 32
"""Fewer workloads wait until the one that is under way has ended: all that are in one share what it costs."""

_ID_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_PAIRS = tuple(first + second for first in _ID_ALPHABET for second in _ID_ALPHABET)
_ID_SHIFTS = (50, 40, 30, 20, 10, 0)


class WorkloadNames:
    """Makes names of workloads: ordered by time, unique, 13 characters that can be spelled on the phone.

    40 bits of milliseconds, 20 bits of chance; within one process names of one millisecond follow each other.
    """

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> WorkloadId:
        now = (time.time_ns() // 1_000_000) & (2**40 - 1)
        if now > self._last >> 20:
            self._last = now << 20 | secrets.randbits(20)
        else:
            self._last += 1
        number = self._last
        return WorkloadId("w" + "".join([_ID_PAIRS[number >> shift & 1023] for shift in _ID_SHIFTS]))


@dataclass(slots=True)
class _Waiting:
    """One call that waits for its workloads to be stored."""

    submissions: list[NewWorkload]
    path: Callable[[int], str]
    stored: asyncio.Future[list[SubmissionResult]]
    workloads: int
    """Of arrays, their elements."""


def workloads_in(submissions: Iterable[NewWorkload]) -> int:
    """How many workloads are stored for these: elements of arrays one by one."""
    return sum([parse_array(one.specification.array).size if one.specification.array else 1 for one in submissions])


class SubmissionBatcher:
    """Takes submissions. `run` stores them until cancelled."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        surroundings: Callable[[], Surroundings],
        metrics: ServiceMetrics | None = None,
    ) -> None:
        """`surroundings` gives the present ones; it may raise Unavailable while there are none."""
        self._database = database
        self._clock = clock
        self._surroundings = surroundings
        self._limits = SubmissionLimits(database)
        self._refusals = (metrics or ServiceMetrics()).submission_refusals
        self._names = WorkloadNames()
        self._waiting: deque[_Waiting] = deque()
        self._arrived = asyncio.Event()
        self._under_way = 0
        """How many transactions are."""

    async def submit(
        self, requests: Sequence[global_scheduler_pb2.SubmitWorkloadRequest], path: Callable[[int], str]
    ) -> list[SubmissionResult]:
        """Stores all of them or none; `path(i)` is what errors call the i-th one's message, such as `requests[3].`.

        Raises InvalidArgument, PreconditionFailed when no region could ever host one, AlreadyExists, Exhausted where a tenant
        has reached a limit.
        """
        submissions = self._judge(requests, path)
        await self._limits.require_room(submissions, self._surroundings().tenants)
        stored: asyncio.Future[list[SubmissionResult]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(submissions, path, stored, workloads_in(submissions)))
        self._arrived.set()
        return await stored

    async def check(
        self, requests: Sequence[global_scheduler_pb2.SubmitWorkloadRequest], path: Callable[[int], str]
    ) -> list[global_scheduler_pb2.SubmitWorkloadResponse]:
        """A dry run: raises what `submit` would, and stores nothing. Says which regions could host each workload."""
        submissions = self._judge(requests, path)
        try:
            results = await rehearse(
                self._database, lambda connection: workload_store.insert_submissions(connection, submissions)
            )
        except _REFUSED as error:
            raise _refusal(error, submissions, path) from error
        regions = self._surroundings().fleet.regions
        return [
            global_scheduler_pb2.SubmitWorkloadResponse(
                workload=result.workload if result.existed else "",
                existed=result.existed,
                hosts=[
                    global_scheduler_pb2.HostingRegion(region=region, clusters=clusters)
                    for region, clusters in await asyncio.to_thread(hosts, regions, submission.specification)
                ],
            )
            for submission, result in zip(submissions, results, strict=True)
        ]

    async def run(self) -> None:
        """Stores whatever waits, in one transaction after the other, a few of them side by side."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_TRANSACTIONS_AT_ONCE):
                group.create_task(self._store_for_ever())

    async def _store_for_ever(self) -> None:
        while True:
            while not self._due:
                self._arrived.clear()
                await self._arrived.wait()
            self._under_way += 1
            try:
                await self._store_some()
            finally:
                self._under_way -= 1
                self._arrived.set()

    @property
    def _due(self) -> bool:
        """Whether another transaction should begin now."""
        # With nothing under way a lone call is stored at once; later ones collect meanwhile and share a transaction.
        if self._under_way == 0:
            return bool(self._waiting)
        return sum(call.workloads for call in self._waiting) >= _WORTH_ANOTHER_TRANSACTION

    def refuse_waiting(self, error: Exception) -> None:
        """Fails the calls that wait: they are not stored any more."""
        _fail(self._waiting, error)
        self._waiting.clear()

    # ------------------------------------------------------------ judging

    def _judge(
        self, requests: Sequence[global_scheduler_pb2.SubmitWorkloadRequest], path: Callable[[int], str]
    ) -> list[NewWorkload]:
        surroundings = self._surroundings()
        now = self._clock.now()
        submissions: list[NewWorkload] = []
        problems: list[FieldProblem] = []
        for index, request in enumerate(requests):
            found, specification, serialized = _read(request, surroundings)
            if specification is None or found:
                prefix = path(index)
                problems.extend(FieldProblem(prefix + problem.field, problem.description) for problem in found)
            elif not problems:
                refusal = surroundings.hosting.refusal(specification)
                if refusal is not None:
                    self._refusals.labels(refusal.diagnosis.reason.value).inc()
                    field = f"{path(index)}specification.{refusal.diagnosis.field}"
                    raise PreconditionFailed(
                        "NO_REGION_CAN_HOST",
                        field,
                        f"{field}: no region could ever host this: {refusal.sentence}",
                        refusal.diagnosis,
                    )
                submissions.append(
                    NewWorkload(
                        workload=self._names.next(),
                        specification=specification,
                        serialized=serialized,
                        submitted_s=now,
                        idempotency_key=request.idempotency_key or None,
                        body_digest=hashlib.blake2b(serialized, digest_size=16).digest(),
                    )
                )
        if problems:
            raise InvalidArgument(problems)
        workloads = workloads_in(submissions)
        if workloads > GREATEST_ELEMENTS:
            described = (
                f"are {workloads:,} workloads, with all elements of arrays; at most {GREATEST_ELEMENTS:,} are possible"
            )
            raise InvalidArgument.of("requests", described + " at a time: submit the arrays one by one")
        return (
            _among_each_other(submissions, path) if any(one.specification.after for one in submissions) else submissions
        )

    # ------------------------------------------------------------ storing

    async def _store_some(self) -> None:
        """Stores the calls that have waited longest; when they cannot be stored together, each for itself."""
        calls = self._take_calls()
        try:
            if not await self._try_to_store(calls) and len(calls) > 1:
                for call in calls:  # one of them is to blame
                    await self._try_to_store([call])
        finally:
            _fail(calls, Unavailable("this global scheduler stops; try again"))  # only those not answered yet

    def _take_calls(self) -> list[_Waiting]:
        calls: list[_Waiting] = []
        workloads = 0
        while self._waiting and (not calls or workloads + self._waiting[0].workloads <= _WORKLOADS_AT_ONCE):
            call = self._waiting.popleft()
            if not call.stored.done():  # else its client has gone
                calls.append(call)
                workloads += call.workloads
        return calls

    async def _try_to_store(self, calls: Sequence[_Waiting]) -> bool:
        """Answers the calls; False when one of several cannot be accepted, so that none was stored or answered."""
        (outcome,) = await asyncio.gather(self._store(calls), return_exceptions=True)
        if not isinstance(outcome, BaseException):
            for call, results in zip(calls, outcome, strict=True):
                if not call.stored.done():
                    call.stored.set_result(results)
            return True
        match outcome:
            case Exception() if isinstance(outcome, _REFUSED):
                if len(calls) > 1:
                    return False
                _fail(calls, _refusal(outcome, calls[0].submissions, calls[0].path))
            case Exception():
                _fail(calls, outcome)
            case _:
                raise outcome
        return True

    async def _store(self, calls: Sequence[_Waiting]) -> list[list[SubmissionResult]]:
        if not calls:
            return []
        submissions = [submission for call in calls for submission in call.submissions]
        results = await self._database.run(
            lambda connection: workload_store.insert_submissions(connection, submissions), waits_for_room=False
        )
        split: list[list[SubmissionResult]] = []
        start = 0
        for call in calls:
            split.append(results[start : start + len(call.submissions)])
            start += len(call.submissions)
        return split


_Refused: TypeAlias = IdempotencyConflict | UnknownTenants | UnknownPackages | NoQuotaAtPriority | DependencyRefused
_REFUSED = (IdempotencyConflict, UnknownTenants, UnknownPackages, NoQuotaAtPriority, DependencyRefused)
"""One of the submissions cannot be accepted."""


def _refusal(error: _Refused, submissions: Sequence[NewWorkload], path: Callable[[int], str]) -> CallRefused:
    """What the one who submits is told."""
    match error:
        case DependencyRefused():
            index = next(number for number, one in enumerate(submissions) if one.workload == error.workload)
            field = f"{path(index)}specification.after[{error.position}]"
            if error.never:
                return PreconditionFailed("DEPENDENCY_CAN_NEVER_BE", field, f"{field}: {error.sentence}")
            return InvalidArgument.of(field, error.sentence)
        case IdempotencyConflict():
            return AlreadyExists("workload", error.workload, str(error))
        case UnknownTenants():
            return InvalidArgument.of("specification.tenant", f"{error}: it has just been removed")
        case UnknownPackages():
            sentence = f"specification.package: {error}; upload its folder again (UploadPackage)"
            return PreconditionFailed("PACKAGE_NOT_STORED", "specification.package", sentence)
        case NoQuotaAtPriority():
            return InvalidArgument.of("specification.priority", f"{error}: it has just been removed")


def _among_each_other(submissions: Sequence[NewWorkload], path: Callable[[int], str]) -> list[NewWorkload]:
    """Those that wait for others of their call wait for their ids. Raises InvalidArgument."""
    graph = read_graph([(one.workload, one.specification) for one in submissions])
    if graph.problems:
        raise InvalidArgument(
            [
                FieldProblem(f"{path(number)}specification.{problem.field}", problem.description)
                for number, problem in graph.problems
            ]
        )
    return [
        one
        if after == one.specification.after
        else replace(
            one,
            specification=replace(one.specification, after=after),
            serialized=with_dependencies(one.serialized, after),
        )
        for one, after in zip(submissions, graph.after, strict=True)
    ]


def _fail(calls: Iterable[_Waiting], error: Exception) -> None:
    for call in calls:
        if not call.stored.done():
            call.stored.set_exception(error)


def _read(
    request: global_scheduler_pb2.SubmitWorkloadRequest, surroundings: Surroundings
) -> tuple[Sequence[FieldProblem], WorkloadSpecification | None, bytes]:
    """The request's problems, its specification (None when it has none), and that in bytes."""
    try:
        specification = specification_from_proto(request.specification)
    except MalformedMessage as malformed:
        return malformed.under("specification").problems, None, b""
    found = check_workload(
        specification,
        tenants=surroundings.tenants,
        gpu_models=surroundings.gpu_models,
        tables=surroundings.catalog.names,
        regions=surroundings.regions,
        owner=surroundings.tenants.get(specification.tenant),
    )
    problems = [FieldProblem(f"specification.{problem.field}", problem.description) for problem in found]
    key = request.idempotency_key
    if len(key) > GREATEST_KEY_CHARACTERS or not key.isprintable():
        problems.append(
            FieldProblem("idempotency_key", f"must be at most {GREATEST_KEY_CHARACTERS} printable characters")
        )
    serialized = request.specification.SerializeToString(deterministic=True)
    if len(serialized) > LARGEST_SPECIFICATION_BYTES:
        problems.append(
            FieldProblem(
                "specification",
                f"is {len(serialized)} bytes, more than {LARGEST_SPECIFICATION_BYTES}: put large values into files",
            )
        )
    return problems, specification, serialized
