"""Users hold, release, requeue, change and cancel workloads, many at a time: all of them or none.

What becomes of each is decided in `global_scheduler.user_requests`; here it is checked, looked up and written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from domain.clock import Clock
from domain.events import EventKind, JsonValue
from domain.identifiers import RegionId, WorkloadId
from domain.life_cycle import State, TransitionRefused
from domain.workload import WorkloadSpecification
from domain.workload_array import element_of
from formats.problems import FieldProblem
from formats.workload_checks import check_workload
from global_scheduler.user_requests import (
    Outcome,
    RequestRefused,
    SpecificationChange,
    WorkloadToday,
    changed,
    hold,
    release,
    requeue,
)
from services.database import array_store, user_request_store
from services.database.connection import AnyConnection
from services.database.dependency_store import HELD_BY_DEPENDENCIES
from services.database.engine import Database
from services.database.requeue_store import RequeuedEntry, requeued_entry
from services.database.user_request_store import LockedWorkload
from services.global_scheduler.array_look import refuse_array
from services.global_scheduler.asked_for import asked_for
from services.global_scheduler.before_changes import states_before
from services.global_scheduler.cancellation import cancel_elements, cancel_workload
from services.global_scheduler.request_checks import Checks, several_workloads
from services.global_scheduler.submission import SubmissionBatcher
from services.global_scheduler.surroundings import Surroundings
from services.grpc_errors import InvalidArgument, NotFound, PreconditionFailed
from services.security.audit import audited, put_off_record
from services.wire.workloads import specification_from_proto, specification_to_proto, state_to_proto
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2

_OWN_PRIORITY = -1
_SOMEBODY = "its user"

_Result = TypeVar("_Result")
_Wanted = ParamSpec("_Wanted")


class UserRequests:
    """Answers these calls."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        batcher: SubmissionBatcher,
        surroundings: Callable[[], Surroundings],
        patience_real_s: float,
    ) -> None:
        """`surroundings` gives the present ones; it may raise Unavailable while there are none."""
        self._database = database
        self._clock = clock
        self._batcher = batcher
        self._surroundings = surroundings
        self._patience_real_s = patience_real_s

    async def cancel(self, request: messages.CancelWorkloadsRequest) -> messages.WorkloadStates:
        """Raises NotFound, and TransitionRefused for the first that has ended already."""
        names, reason = several_workloads(request.workloads), _text("reason", request.reason)

        async def write(connection: AnyConnection) -> messages.WorkloadStates:
            # As everybody locks them: their entries first, each by name.
            asked = await asked_for(connection, names)
            await user_request_store.lock(connection, asked.everything)
            now = self._clock.now()
            states: dict[WorkloadId, State] = {}
            for array in asked.arrays:
                elements = asked.elements_of(array)
                if elements or not request.passes_over_ended:
                    states[array] = await cancel_elements(connection, array, elements, reason, now)
                else:
                    states[array] = (await array_store.counts_of(connection, [array]))[array].state
            for name in sorted(asked.single):
                try:
                    states[name] = await cancel_workload(connection, name, reason, now)
                except TransitionRefused as ended:
                    if not request.passes_over_ended:
                        raise
                    states[name] = ended.state
            return asked.states(states, asked.everything)

        return await self._run(names, write)

    async def hold(self, request: messages.HoldWorkloadsRequest) -> messages.WorkloadStates:
        """Raises NotFound and PreconditionFailed."""
        names, reason = several_workloads(request.workloads), _text("reason", request.reason)
        asked_by = _text("asked_by", request.asked_by) or _SOMEBODY

        async def write(connection: AnyConnection) -> messages.WorkloadStates:
            asked = await asked_for(connection, names)
            found = await _locked(connection, asked.everything)
            outcomes = {
                name: _decided(hold, one, requeue=request.requeue)
                for name, one in found.items()
                if name not in asked.elements
            }
            for name in asked.elements:
                outcomes |= _possible(hold, found[name], requeue=request.requeue)
            held = _with(outcomes, Outcome.LEAVES_QUEUE, Outcome.STOPPED)
            stopped = _with(outcomes, Outcome.STOPPED)
            held_by = f"{asked_by}: {reason}" if reason else asked_by
            await user_request_store.hold(connection, held, held_by, f"held by {held_by}")
            if stopped:
                await user_request_store.ask_to_requeue(connection, stopped, asked_by)
            details: dict[str, JsonValue] = {"by": asked_by, "reason": reason}
            await self._tell(connection, EventKind.HELD, [found[name] for name in held], details)
            return asked.states({name: one.today.state for name, one in found.items()}, held)

        return await self._run(names, write)

    async def release(self, request: messages.ReleaseWorkloadsRequest) -> messages.WorkloadStates:
        """Raises NotFound and PreconditionFailed."""
        names = several_workloads(request.workloads)
        asked_by = _text("asked_by", request.asked_by) or _SOMEBODY

        async def write(connection: AnyConnection) -> messages.WorkloadStates:
            asked = await asked_for(connection, names)
            found = await _locked(connection, asked.everything)
            outcomes = {name: _decided(release, one) for name, one in found.items() if name not in asked.elements}
            for name in asked.elements:
                outcomes |= _possible(release, found[name])
            released = [name for name in outcomes if found[name].today.held]
            await user_request_store.release(connection, released)
            entering = _with(outcomes, Outcome.ENTERS_QUEUE)
            awaiting = set(await array_store.await_turns(connection, entering))
            entries = {name: _entry(found[name]) for name in entering if name not in awaiting}
            await user_request_store.enter_queue(connection, entries, self._clock.now())
            await self._tell(connection, EventKind.RELEASED, [found[name] for name in released], {"by": asked_by})
            waiting = _with(outcomes, Outcome.GOES_ON_WAITING)
            if waiting:
                await user_request_store.hold(connection, waiting, HELD_BY_DEPENDENCIES, "waits for others")
                details: dict[str, JsonValue] = {"by": HELD_BY_DEPENDENCIES}
                await self._tell(connection, EventKind.HELD, [found[name] for name in waiting], details)
            told = [(name, found[name].tenant) for name in entering if name in awaiting]
            await array_store.tell_awaiting(connection, told, self._clock.now())
            return asked.states({name: one.today.state for name, one in found.items()}, released)

        return await self._run(names, write)

    async def requeue(self, request: messages.RequeueWorkloadsRequest) -> messages.WorkloadStates:
        """Raises NotFound and PreconditionFailed, and for what has ended whatever its submission raises."""
        names = several_workloads(request.workloads)
        asked_by = _text("asked_by", request.asked_by) or _SOMEBODY

        async def write(connection: AnyConnection) -> tuple[dict[WorkloadId, LockedWorkload], list[WorkloadId]]:
            found = await _locked(connection, names)
            outcomes = {name: _decided(requeue, one) for name, one in found.items()}
            ended = _with(outcomes, Outcome.SUBMITTED_ANEW)
            if 0 < len(ended) < len(names):
                other = next(name for name in names if name not in ended)
                raise _refused(
                    RequestRefused(
                        ended[0],
                        f"has ended, and {other} has not: what has ended is submitted anew; requeue them apart",
                    )
                )
            if ended:
                put_off_record()
            stopped = _with(outcomes, Outcome.STOPPED)
            if stopped:
                await user_request_store.ask_to_requeue(connection, stopped, asked_by)
            return found, ended

        found, ended = await self._run(names, write)
        states = {name: one.today.state for name, one in found.items()}
        if not ended:
            return _states(names, states)
        return _states(names, states, anew=await self._submit_anew([found[name] for name in names], request))

    async def _submit_anew(
        self, ended: Sequence[LockedWorkload], request: messages.RequeueWorkloadsRequest
    ) -> Mapping[WorkloadId, str]:
        requests = []
        for one in ended:
            again = workload_pb2.WorkloadSpecification.FromString(one.specification)
            again.ClearField("hold")
            again.ClearField("after")
            element = element_of(one.today.workload)
            if again.array and element is not None:
                # It alone, as an array of its own: with the index that its tasks go by.
                again.array = str(element[1])
            key = f"{request.idempotency_key}/{one.today.workload}" if request.idempotency_key else ""
            requests.append(messages.SubmitWorkloadRequest(specification=again, idempotency_key=key))
        results = await self._batcher.submit(requests, lambda index: f"{ended[index].today.workload}: ")
        return {one.today.workload: result.workload for one, result in zip(ended, results, strict=True)}

    async def change(self, request: messages.ChangeWorkloadsRequest) -> messages.WorkloadStates:
        """Raises NotFound and PreconditionFailed, and InvalidArgument for what a submission could not say either."""
        names, wanted = several_workloads(request.workloads), _change_of(request)
        asked_by = _text("asked_by", request.asked_by) or _SOMEBODY

        async def write(connection: AnyConnection) -> messages.WorkloadStates:
            found = await _locked(connection, names)
            new = {name: _decided(changed, one, _specification(one), wanted) for name, one in found.items()}
            for name in names:
                self._check(name, new[name])
            serialized = {
                name: (one, specification_to_proto(one).SerializeToString(deterministic=True))
                for name, one in new.items()
            }
            keep_places = not wanted.touches_its_place
            revision = await user_request_store.change(connection, serialized, keep_places=keep_places)
            details: dict[str, JsonValue] = {"by": asked_by, "revision": revision, "changed": _details(wanted)}
            await self._tell(connection, EventKind.CHANGED, [found[name] for name in names], details)
            return _states(names, {name: one.today.state for name, one in found.items()})

        return await self._run(names, write)

    def _check(self, workload: WorkloadId, specification: WorkloadSpecification) -> None:
        """As a submission is checked: by itself, and against what there is."""
        surroundings = self._surroundings()
        problems = check_workload(
            specification,
            tenants=surroundings.tenants,
            gpu_models=surroundings.gpu_models,
            tables=surroundings.catalog.names,
            regions=surroundings.regions,
            owner=surroundings.tenants.get(specification.tenant),
        )
        if problems:
            raise InvalidArgument([FieldProblem(problem.field, problem.description) for problem in problems])
        refusal = surroundings.hosting.refusal(specification)
        if refusal is not None:
            raise PreconditionFailed(
                "NO_REGION_CAN_HOST",
                workload,
                f"workload {workload}: no region could ever host it then: {refusal.sentence}",
                refusal.diagnosis,
            )

    async def _tell(
        self,
        connection: AnyConnection,
        kind: EventKind,
        workloads: Sequence[LockedWorkload],
        details: Mapping[str, JsonValue],
    ) -> None:
        said = {name: value for name, value in details.items() if value != ""}
        await user_request_store.append_events(connection, kind, workloads, said, self._clock.now())

    async def _run(
        self, names: Sequence[WorkloadId], operation: Callable[[AnyConnection], Awaitable[_Result]]
    ) -> _Result:
        return await self._database.run(audited(operation, states_before(names)), give_up_after_s=self._patience_real_s)


async def _locked(connection: AnyConnection, names: Sequence[WorkloadId]) -> dict[WorkloadId, LockedWorkload]:
    """In the order of the request. Raises NotFound."""
    found = await user_request_store.lock(connection, names)
    for name in names:
        if name not in found:
            await refuse_array(connection, name)
            raise NotFound("workload", name)
    return {name: found[name] for name in names}


def _decided(
    decide: Callable[Concatenate[WorkloadToday, _Wanted], _Result],
    one: LockedWorkload,
    *wanted: _Wanted.args,
    **named: _Wanted.kwargs,
) -> _Result:
    """What the decision says of this one. Raises PreconditionFailed."""
    try:
        return decide(one.today, *wanted, **named)
    except RequestRefused as refused:
        raise _refused(refused) from refused


def _possible(
    decide: Callable[Concatenate[WorkloadToday, _Wanted], Outcome],
    element: LockedWorkload,
    *wanted: _Wanted.args,
    **named: _Wanted.kwargs,
) -> dict[WorkloadId, Outcome]:
    """What the decision says of an element, when all of its array are asked for: none where it cannot happen to it."""
    try:
        return {element.today.workload: decide(element.today, *wanted, **named)}
    except RequestRefused:
        return {}


def _refused(refused: RequestRefused) -> PreconditionFailed:
    return PreconditionFailed("WORKLOAD_STATE", refused.workload, refused.sentence)


def _with(outcomes: Mapping[WorkloadId, Outcome], *wanted: Outcome) -> list[WorkloadId]:
    return [name for name, outcome in outcomes.items() if outcome in wanted]


def _specification(one: LockedWorkload) -> WorkloadSpecification:
    return specification_from_proto(workload_pb2.WorkloadSpecification.FromString(one.specification))


def _entry(one: LockedWorkload) -> RequeuedEntry:
    return requeued_entry(_specification(one))


def _states(
    names: Sequence[WorkloadId], states: Mapping[WorkloadId, State], anew: Mapping[WorkloadId, str] | None = None
) -> messages.WorkloadStates:
    return messages.WorkloadStates(
        workloads=[
            messages.WorkloadNow(
                workload=name, state=state_to_proto(states[name]), submitted_anew_as=(anew or {}).get(name, "")
            )
            for name in names
        ]
    )


def _text(field: str, value: str) -> str:
    """Raises InvalidArgument when it cannot be stored."""
    checks = Checks()
    checks.text(field, value)
    checks.raise_problems()
    return value


def _change_of(request: messages.ChangeWorkloadsRequest) -> SpecificationChange:
    """What is to be different. Raises InvalidArgument when nothing is, or both of two that exclude each other."""
    checks = Checks()
    if request.anywhere and request.regions:
        checks.add("regions", "are named, and anywhere is asked for; give one of the two")
    both = sorted(set(request.labels) & set(request.without_labels))
    if both:
        checks.add("labels", f"sets {both[0]}, which without_labels takes away; give one of the two")
    own = request.HasField("priority") and request.priority == _OWN_PRIORITY
    wanted = SpecificationChange(
        priority=request.priority if request.HasField("priority") and not own else None,
        own_priority=own,
        regions=tuple(RegionId(region) for region in request.regions) if request.regions or request.anywhere else None,
        labels=tuple(sorted(request.labels.items())),
        without_labels=frozenset(request.without_labels),
        max_time_s=request.max_time_s if request.HasField("max_time_s") else None,
        priority_class=request.priority_class if request.HasField("priority_class") else None,
    )
    if wanted == SpecificationChange():
        checks.add("request", "changes nothing; say what is to be different")
    checks.raise_problems()
    return wanted


def _details(wanted: SpecificationChange) -> dict[str, JsonValue]:
    """What was asked for, as the log has it."""
    said: dict[str, JsonValue] = {}
    if wanted.priority is not None or wanted.own_priority:
        said["priority"] = wanted.priority
    if wanted.regions is not None:
        said["regions"] = list(wanted.regions)
    if wanted.labels:
        said["labels"] = dict(wanted.labels)
    if wanted.without_labels:
        said["without_labels"] = [*sorted(wanted.without_labels)]
    if wanted.max_time_s is not None:
        said["max_time_s"] = wanted.max_time_s
    if wanted.priority_class is not None:
        said["priority_class"] = wanted.priority_class
    return said
