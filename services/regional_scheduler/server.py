"""The gRPC face of a regional scheduler: what it has, what it would do, and maintenance of its machines.

Calls are answered from the memory of the present session; while there is none they are UNAVAILABLE. Whatever changes
something goes through the session's own loop.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import grpc

from domain.clock import Clock
from domain.identifiers import ClusterId, JobName, MachineId, RegionId, WorkloadId
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey
from domain.plan import Plan, Retune, ScaleIn
from domain.rank import Standing
from domain.tenant import HIGHEST_PRIORITY, LOWEST_PRIORITY, Tenant
from domain.workload import Workload, WorkloadSpecification
from formats.workload_checks import check_workload
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusal import Refusal
from regional_scheduler.refusal_in_cells import in_words_of_cells
from regional_scheduler.region_capacity import RegionCapacity
from services.database.lease_store import LeaseLost
from services.grpc_errors import InvalidArgument, NotFound, PreconditionFailed, Unavailable
from services.regional_scheduler.action_requests import (
    ActionRefused,
    ActionRequest,
    MigrateRequest,
    ReclaimRequest,
    ResizeRequest,
    RetuneRequest,
)
from services.regional_scheduler.action_response import action_response
from services.regional_scheduler.further_answers import CannotGoOn, answers_to_proto, question_from_proto
from services.regional_scheduler.inbox import MachineRequest
from services.regional_scheduler.inventory_look import look_at_inventory
from services.regional_scheduler.machine_maintenance import MachineStateRefused
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session import RegionSession
from services.regional_scheduler.session_over import SessionOver
from services.wire.plans import attempt_to_text, plan_to_proto
from services.wire.workloads import specification_from_proto
from topmast.v1 import regional_scheduler_pb2 as messages
from topmast.v1 import regional_scheduler_pb2_grpc

BY_HAND = "drained by hand"
UNDONE_BY_HAND = "undrained by hand"

_PLANNED_AS = WorkloadId("dry-run")
_REQUEST_PATIENCE_REAL_S = 30.0
GREATEST_AMOUNT = 1e6
"""Of CPUs or GiB that a task can be given."""

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class RegionalSchedulerServicer(regional_scheduler_pb2_grpc.RegionalSchedulerServicer):
    """Serves the region of the present session."""

    def __init__(self, region: RegionId, session: Callable[[], RegionSession | None], clock: Clock) -> None:
        self._region = region
        self._session = session
        self._clock = clock

    async def GetInventory(
        self, request: messages.GetInventoryRequest, context: Context
    ) -> messages.GetInventoryResponse:
        memory = self._require_session().memory
        clusters = [cluster for cluster in memory.region.clusters if request.cluster in ("", str(cluster.cluster))]
        if not clusters:
            raise NotFound("cluster", request.cluster)
        return messages.GetInventoryResponse(region=self._region, machines=await look_at_inventory(memory, clusters))

    async def PlanWorkload(
        self, request: messages.PlanWorkloadRequest, context: Context
    ) -> messages.PlanWorkloadResponse:
        memory = self._require_session().memory
        specification = specification_from_proto(request.specification)
        problems = check_workload(specification, tenants=memory.tenants, owner=memory.tenants.get(specification.tenant))
        if problems:
            raise InvalidArgument(
                [type(problem)(f"specification.{problem.field}", problem.description) for problem in problems]
            )
        standing = _standing(request, specification, memory)
        abandoned = memory.bidder.abandons(specification)
        if abandoned is not None:
            return messages.PlanWorkloadResponse(placeable=False, reason=abandoned.sentence)
        now = self._clock.now()
        within_quota = _within_quota(standing, memory.tenants[specification.tenant])
        workload = Workload(_PLANNED_AS, specification, now)
        plan = await memory.visits.visit(
            lambda: _planned(memory.inventory, workload, standing, now, within_quota=within_quota)
        )
        if isinstance(plan, Refusal):
            return messages.PlanWorkloadResponse(placeable=False, reason=plan.sentence)
        return plan_to_proto(plan, _what_it_takes(plan))

    async def DrainMachine(
        self, request: messages.DrainMachineRequest, context: Context
    ) -> messages.DrainMachineResponse:
        evicted = await self._change_machines(
            [request.machine],
            MachineHappening.DRAINED,
            request.reason or BY_HAND,
            keep_running=request.keep_running,
        )
        return messages.DrainMachineResponse(evicting=[attempt_to_text(key) for key in evicted])

    async def UndrainMachine(
        self, request: messages.UndrainMachineRequest, context: Context
    ) -> messages.UndrainMachineResponse:
        await self._change_machines([request.machine], MachineHappening.UNDRAINED, UNDONE_BY_HAND, keep_running=True)
        return messages.UndrainMachineResponse()

    async def DrainMachines(
        self, request: messages.DrainMachinesRequest, context: Context
    ) -> messages.DrainMachinesResponse:
        deadline_s = request.deadline_s if request.HasField("deadline_s") else None
        if deadline_s is not None and not math.isfinite(deadline_s):
            raise InvalidArgument.of("deadline_s", f"is {deadline_s}; it must be a finite number of seconds")
        evicted = await self._change_machines(
            request.machines,
            MachineHappening.DRAINED,
            request.reason or BY_HAND,
            keep_running=deadline_s is not None and deadline_s > self._clock.now(),
            deadline_s=deadline_s,
            refuse=False,
        )
        return messages.DrainMachinesResponse(evicting=[attempt_to_text(key) for key in evicted])

    async def UndrainMachines(
        self, request: messages.UndrainMachinesRequest, context: Context
    ) -> messages.UndrainMachinesResponse:
        await self._change_machines(
            request.machines, MachineHappening.UNDRAINED, UNDONE_BY_HAND, keep_running=True, refuse=False
        )
        return messages.UndrainMachinesResponse()

    async def ResizeWorkload(
        self, request: messages.ResizeWorkloadRequest, context: Context
    ) -> messages.ActionResponse:
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        workload, job = WorkloadId(request.workload), JobName(request.job)
        return await self._act(ResizeRequest(workload=workload, job=job, tasks=request.tasks, plan=plan))

    async def RetuneWorkload(
        self, request: messages.RetuneWorkloadRequest, context: Context
    ) -> messages.ActionResponse:
        for field in ("cpus", "memory_gib"):
            amount = getattr(request, field) if request.HasField(field) else 1.0
            if not (math.isfinite(amount) and 0 < amount <= GREATEST_AMOUNT):
                raise InvalidArgument.of(
                    field, f"is {amount:,g}; it must be more than 0 and at most {GREATEST_AMOUNT:,.0f}"
                )
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        return await self._act(
            RetuneRequest(
                workload=WorkloadId(request.workload),
                job=JobName(request.job),
                cpus=request.cpus if request.HasField("cpus") else None,
                memory_gib=request.memory_gib if request.HasField("memory_gib") else None,
                plan=plan,
            )
        )

    async def MigrateWorkload(
        self, request: messages.MigrateWorkloadRequest, context: Context
    ) -> messages.ActionResponse:
        session = self._require_session()
        clusters = [cluster.cluster for cluster in session.memory.region.clusters]
        if request.cluster and request.cluster not in clusters:
            raise NotFound("cluster", request.cluster)
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        cluster = ClusterId(request.cluster) if request.cluster else None
        return await self._act(MigrateRequest(workload=WorkloadId(request.workload), cluster=cluster, plan=plan))

    async def ReclaimMachines(
        self, request: messages.ReclaimMachinesRequest, context: Context
    ) -> messages.ActionResponse:
        known = {machine.machine for machine in self._require_session().memory.region.machines()}
        missing = next((name for name in request.machines if name not in known), None)
        if missing is not None:
            raise NotFound("machine", missing)
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        machines = tuple(MachineId(name) for name in dict.fromkeys(request.machines))
        return await self._act(ReclaimRequest(machines=machines, plan=plan))

    async def AnswerFurther(
        self, request: messages.AnswerFurtherRequest, context: Context
    ) -> messages.AnswerFurtherResponse:
        further = self._require_session().further_answers
        try:
            response = await further.answer(question_from_proto(request), self._clock.now())
        except CannotGoOn as cannot:
            raise PreconditionFailed("ROUND", str(request.round), str(cannot)) from cannot
        return answers_to_proto(response, further.lease_token)

    async def _act(self, request: ActionRequest) -> messages.ActionResponse:
        session = self._require_session()
        try:
            session.inbox.request_action(request)
            async with asyncio.timeout(_REQUEST_PATIENCE_REAL_S):
                plan = await request.plan
        except ActionRefused as refused:
            raise PreconditionFailed("ACTION", request.workload, str(refused)) from refused
        except (SessionOver, LeaseLost, TimeoutError) as error:
            raise Unavailable(f"region {self._region} could not do it just now; try again") from error
        return action_response(plan, session.memory)

    async def _change_machines(
        self,
        names: Sequence[str],
        happening: MachineHappening,
        reason: str,
        *,
        keep_running: bool,
        deadline_s: float | None = None,
        refuse: bool = True,
    ) -> list[AttemptKey]:
        session = self._require_session()
        if "\0" in reason:
            raise InvalidArgument.of("reason", "has a NUL character; remove it")
        known = {machine.machine for machine in session.memory.region.machines()}
        missing = next((name for name in names if name not in known), None)
        if missing is not None:
            raise NotFound("machine", missing)
        machines = tuple(MachineId(name) for name in dict.fromkeys(names))
        evicted: asyncio.Future[list[AttemptKey]] = asyncio.get_running_loop().create_future()
        try:
            session.inbox.request(
                MachineRequest(machines, happening, reason, keep_running, evicted, deadline_s, refuse)
            )
            async with asyncio.timeout(_REQUEST_PATIENCE_REAL_S):
                return await evicted
        except MachineStateRefused as refused:
            raise PreconditionFailed("STATE", names[0], str(refused)) from refused
        except (SessionOver, LeaseLost, TimeoutError) as error:
            raise Unavailable(f"region {self._region} could not do it just now; try again") from error

    def _require_session(self) -> RegionSession:
        session = self._session()
        if session is None:
            raise Unavailable(f"region {self._region} is not ready; try again")
        return session


def _planned(
    inventory: RegionCapacity, workload: Workload, standing: Standing, now: float, *, within_quota: bool
) -> Plan | Refusal:
    plan = plan_workload(inventory, workload, standing, now, within_quota=within_quota)
    if not isinstance(plan, Refusal):
        return plan
    return in_words_of_cells(inventory, workload.specification, plan, standing, now, within_quota=within_quota)


def _standing(
    request: messages.PlanWorkloadRequest, specification: WorkloadSpecification, memory: RegionMemory
) -> Standing:
    if request.level < 0:
        raise InvalidArgument.of("level", f"is {request.level}; levels are numbered from 0")
    if not request.HasField("priority"):
        return Standing(memory.tenants[specification.tenant].priority_of(specification.priority), request.level)
    if not HIGHEST_PRIORITY <= request.priority <= LOWEST_PRIORITY:
        raise InvalidArgument.of("priority", f"must be between {HIGHEST_PRIORITY} and {LOWEST_PRIORITY}")
    return Standing(request.priority, request.level)


def _within_quota(standing: Standing, tenant: Tenant) -> bool:
    """Workloads over their tenant's quota are at the lowest priority; at any other one it is planned as within."""
    return standing.priority != LOWEST_PRIORITY or LOWEST_PRIORITY in tenant.priorities


def _what_it_takes(plan: Plan) -> str:
    machines = len({placement.machine for placement in plan.placements})
    steps: list[str] = []
    tasks = {action.attempt: len(action.released) for action in plan.actions if isinstance(action, ScaleIn)}
    if tasks:
        of_attempts = ", ".join(f"{count} of {attempt_to_text(key)}" for key, count in tasks.items())
        steps.append(f"taking {sum(tasks.values())} flexible tasks: {of_attempts}")
    tuned = [attempt_to_text(action.attempt) for action in plan.actions if isinstance(action, Retune)]
    if tuned:
        steps.append(f"taking CPUs or memory above their share from {', '.join(tuned)}")
    if plan.evictions:
        victims = ", ".join(attempt_to_text(key) for key in plan.evictions)
        steps.append(f"evicting {len(plan.evictions)} workloads: {victims}")
    what = f"after {'; '.join(steps)}" if steps else "without evicting anything"
    return f"fits on {machines} machines {what}"
