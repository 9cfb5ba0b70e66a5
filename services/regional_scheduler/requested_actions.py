"""What operators ask of running attempts: planned, written in one transaction, and only then carried out.

From the plan on it is the way that any policy's plan takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from cluster_manager.capacity.errors import InventoryError
from cluster_manager.skew.spread import most_gpus_of_machines
from domain.clock import Clock
from domain.identifiers import MachineId, WorkloadId
from domain.life_cycle import State
from domain.machine_life_cycle import MachineTransitionRefused
from domain.placement import Score
from domain.placement_changes import ImpossibleAction
from domain.plan import Plan, Reclaim
from domain.tuned_speed import NO_PROFILES, ProfilesOfJobs
from regional_scheduler.compaction import Compaction
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.requested_plans import AttemptToChange, plan_migration, plan_resize, plan_retune
from regional_scheduler.trial import plan_after_trial
from services.database import attempt_store, queue_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.revision_store import load_revisions
from services.regional_scheduler.action_requests import (
    ActionRefused,
    ActionRequest,
    CompactRequest,
    MigrateRequest,
    ReclaimRequest,
    ResizeRequest,
    RetuneRequest,
    TrialOverRequest,
)
from services.regional_scheduler.arrivals import Arrivals
from services.regional_scheduler.eviction_writer import EvictionWriter
from services.regional_scheduler.plan_writing import PlannedWrites, PlanWriting, write_changes
from services.regional_scheduler.recording import begin_evictions
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.session_over import SessionOver
from services.tiers.fenced_transaction import fenced_transaction


class RequestedActions:
    """Answers requests, one after the other."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        memory: RegionMemory,
        eviction_writer: EvictionWriter,
        arrivals: Arrivals,
        clock: Clock,
    ) -> None:
        self._arrivals = arrivals
        self._database = database
        self._lease = lease
        self._memory = memory
        self._eviction_writer = eviction_writer
        self._clock = clock

    async def answer(self, requests: Iterable[ActionRequest]) -> None:
        """What breaks the session is also the answer to those that wait."""
        for request in requests:
            try:
                plan = await self._carry_out(request)
            except (ImpossibleAction, InventoryError, MachineTransitionRefused) as refused:
                _fail(request, ActionRefused(str(refused)))
            except ActionRefused as refused:
                _fail(request, refused)
            except Exception as error:
                _fail(request, error)
                raise
            else:
                if not request.plan.done():
                    request.plan.set_result(plan)

    async def migrate(self, workload: WorkloadId) -> Plan:
        """Lets a workload that runs here go on on other machines of the region. Raises ActionRefused."""
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        await self.answer([MigrateRequest(workload=workload, cluster=None, plan=plan)])
        return await plan

    async def compact(self, compaction: Compaction) -> None:
        """Lets attempts go on elsewhere to make room for a workload. Raises ActionRefused, and nothing has changed."""
        plan: asyncio.Future[Plan] = asyncio.get_running_loop().create_future()
        await self.answer([CompactRequest(compaction=compaction, plan=plan)])
        await plan

    async def _carry_out(self, request: ActionRequest) -> Plan:
        """Plans it, writes it, and does to memory what was committed."""
        now = self._clock.now()
        async with fenced_transaction(self._database, self._lease) as connection:
            if await load_revisions(connection) != self._memory.revisions:
                raise ActionRefused("the fleet, the tenants or the tables have just changed; ask again")
            plan = await self._plan(connection, request, now)
            writing = PlanWriting(self._memory.region.region, self._memory.live, now)
            # Tried first: what is impossible must not be written, nor done by halves.
            with self._memory.inventory.tentatively():
                apply_plan(self._memory.inventory, plan, now)
            writing.add(plan)
            await self._write(connection, writing.writes, now)
            # What is kept there for an attempt that migrates goes back too: nothing would ask the successor to leave.
            without_place = await self._arrivals.give_up(connection, writing.writes.reclaimed)
        apply_plan(self._memory.inventory, plan, now)
        self._eviction_writer.carry_out(writing.writes)
        for workload in without_place:
            self._arrivals.withdraw(workload)
        return plan

    async def _write(self, connection: AnyConnection, writes: PlannedWrites, now: float) -> None:
        await write_changes(connection, self._memory.region.region, writes, now)
        leaving = [
            (attempt, eviction)
            for key, eviction in writes.evictions
            if (attempt := self._memory.live.get(key)) is not None
        ]
        marked = await begin_evictions(connection, self._memory.region.region, leaving, now)
        if len(marked) != len(writes.evictions):
            raise SessionOver(f"of {len(writes.evictions)} attempts that are to leave only {len(marked)} were live")

    async def _plan(self, connection: AnyConnection, request: ActionRequest, now: float) -> Plan:
        inventory = self._memory.inventory
        match request:
            case ResizeRequest(workload=workload, job=job, tasks=tasks):
                return plan_resize(inventory, self._running(workload), job, tasks, now)
            case RetuneRequest(workload=workload, job=job, cpus=cpus, memory_gib=memory_gib):
                return plan_retune(inventory, self._running(workload), job, cpus, memory_gib)
            case MigrateRequest(workload=workload, cluster=cluster):
                attempt = await self._running_anywhere(connection, workload)
                abandoned = self._memory.bidder.abandons(attempt.specification)
                if abandoned is not None:
                    raise ActionRefused(abandoned.sentence)
                return plan_migration(inventory, attempt, cluster, now)
            case TrialOverRequest(workload=workload):
                placed_now = await self._memory.specifications.workloads(connection, [workload])
                most_gpus = most_gpus_of_machines(self._memory.region.clusters)
                attempt, profiles = self._running(workload), self._profiles(workload)
                placed = placed_now[workload].specification
                placed = self._memory.asked_again(placed, profiles, attempt.placements)
                return plan_after_trial(inventory, attempt, placed, most_gpus, now)
            case CompactRequest(compaction=compaction):
                for key in compaction.moved:
                    attempt = await self._running_anywhere(connection, key.workload)
                    if attempt.key != key:
                        raise ActionRefused(f"{key} does not run any more")
                    abandoned = self._memory.bidder.abandons(attempt.specification)
                    if abandoned is not None:
                        raise ActionRefused(abandoned.sentence)
                await queue_store.say_room_is_made(connection, compaction.plan.workload, compaction.sentence)
                return compaction.plan
            case ReclaimRequest(machines=machines):
                self._require_reached(machines)
                keys = {key for machine in machines for key in self._memory.live.on(machine)}
                known = [self._memory.live.get(key) for key in sorted(keys)]
                victims = tuple(one.key for one in known if one is not None and one.state is not State.PREEMPTING)
                action = Reclaim(machines, victims)
                return Plan(request.workload, self._memory.region.region, (action,), Score())

    def _require_reached(self, machines: Sequence[MachineId]) -> None:
        """Raises ActionRefused for a machine whose cluster manager cannot be reached: nothing would ask what runs there
        to leave."""
        for cluster, closed in self._memory.closed.items():
            for machine in machines:
                if machine in closed:
                    raise ActionRefused(
                        f"the manager of cluster {cluster}, which has machine {machine}, cannot be reached; "
                        "start it, or try again when it is back"
                    )

    def _profiles(self, workload: str) -> ProfilesOfJobs:
        """Those of its attempt here."""
        known = [attempt.tuned.profiles for attempt in self._memory.live if attempt.key.workload == workload]
        return known[0] if known else NO_PROFILES

    def _running(self, workload: str) -> AttemptToChange:
        """Raises ActionRefused unless an attempt of the workload runs here."""
        for attempt in self._memory.live:
            if attempt.key.workload == workload:
                if attempt.state is not State.RUNNING:
                    raise ActionRefused(f"{workload} is {attempt.state.value} and does not run; wait until it does")
                asked = self._memory.asked_again(attempt.specification, attempt.tuned.profiles, attempt.placements)
                return AttemptToChange(attempt.key, asked, attempt.placements, attempt.within_quota)
        raise ActionRefused(f"{workload} does not run in region {self._memory.region.region}")

    async def _running_anywhere(self, connection: AnyConnection, workload: str) -> AttemptToChange:
        """The same for a workload that may run in another region."""
        if any(attempt.key.workload == workload for attempt in self._memory.live):
            return self._running(workload)
        region = await attempt_store.region_of_running(connection, workload)
        if region is None:
            raise ActionRefused(f"{workload} does not run anywhere; only what runs can go on elsewhere")
        for stored in await attempt_store.load_live(connection, region):
            if stored.key.workload == workload:
                names = await self._memory.specifications.workloads(connection, [stored.key.workload])
                specification = names[stored.key.workload].specification
                profiles = self._memory.works.of(specification, stored.profiles_revision).profiles
                specification = self._memory.asked_again(specification, profiles, stored.placements)
                return AttemptToChange(stored.key, specification, stored.placements, stored.within_quota)
        raise ActionRefused(f"{workload} does not run any more")


def _fail(request: ActionRequest, error: Exception) -> None:
    if not request.plan.done():
        request.plan.set_exception(error)
