"""The simulator's decisions on a recorded course: its columns, scanner, queue, queue pass and regions."""

from __future__ import annotations

import math
from collections.abc import Callable

from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.placement import Holding
from domain.rank import QueuePosition, Standing
from domain.tenant import quota_charges
from domain.workload import Workload, WorkloadSpecification
from global_scheduler.scan_settings import QueueRule
from global_scheduler.service_history import ServiceHistory
from regional_scheduler.plan_application import apply_plan
from simulator.baselines.mast import MAST
from simulator.engine.asked_capacity import AskedCapacity
from simulator.engine.one_workload import OneWorkload
from simulator.engine.queue_pass import QueuePassFacts, SimulatedQueuePass
from simulator.engine.queues import ScannedQueue, WorkloadQueue
from simulator.engine.regions import SimulatedRegions, Win
from simulator.engine.scanning import Scanner
from simulator.engine.settings import CostSettings
from simulator.engine.tenant_use import TenantUse
from simulator.engine.workloads import SimulatedWorkload
from tests.simulator.contract.decisions import Decisions, DispatchDecision, Reclassified, ordered
from tests.simulator.contract.recorded_run import (
    CREDIT,
    MACHINE_STATES,
    RecordedRun,
    key_of,
    placements_of,
    region_of,
    victims_of,
)


class SimulatedDriver:
    """The simulator's way to decide, under the policy `mast`."""

    def __init__(self, run: RecordedRun) -> None:
        self._run = run
        self._tenants = sorted(run.tenants, key=lambda tenant: tenant.tenant)
        self._positions = {tenant.tenant: number for number, tenant in enumerate(self._tenants)}
        self._regions = {region.region: number for number, region in enumerate(run.fleet.regions)}
        self._use = TenantUse(len(self._tenants), CREDIT.usage_window_s, run.events[0].t)
        names = [str(workload.workload) for workload in run.workloads]
        rule = QueueRule(MAST.ordering)
        self._scanner = Scanner(self._tenants, names, rule, CREDIT, self._use, ServiceHistory())
        self._simulated = SimulatedRegions(run.fleet, Catalog(run.tables))
        self._kinds = Kinds()
        self._works = [self._work_of(index, workload) for index, workload in enumerate(run.workloads)]
        self._by_name = {work.workload.workload: work for work in self._works}
        self._queue = ScannedQueue(self._scanner.columns, self._works)

    def _work_of(self, index: int, workload: Workload) -> SimulatedWorkload:
        specification = workload.specification
        tenant = self._positions[specification.tenant]
        eligible = self._simulated.eligible(specification)
        kind = self._kinds.kind_of(index, specification, eligible)
        return SimulatedWorkload(
            index=index,
            workload=workload,
            tenant=tenant,
            base_gpus=specification.demand.total_gpus,
            submitted_s=workload.submitted_s,
            work_s=1.0,
            checkpoint_interval_s=0.0,
            kind=kind,
            shape=kind,
            eligible=eligible,
            charges=quota_charges(specification, self._tenants[tenant]),
            quota_priority=self._tenants[tenant].priority,
        )

    # What happens.

    def take(self, event: Event) -> None:
        """Columns and rooms, as the simulator has them after that."""
        match event.event:
            case EventKind.SUBMITTED:
                work = self._work(event)
                self._scanner.columns.submit(work)
                self._queue.add(work, event.t)
            case EventKind.DISPATCHED:
                self._dispatch(event)
            case EventKind.STARTED:
                work = self._work(event)
                work.started_s = event.t
                work.state = State.RUNNING
                self._scanner.columns.start(work)
            case EventKind.EVICTING:
                self._leave(self._work(event))
            case EventKind.RECLASSIFIED:
                work = self._work(event)
                work.standing = Standing(event.priority or 0, event.level or 0)
                work.within_quota = bool(event.details["within_quota"])
                self._scanner.columns.stand(work)
                self._simulated.members[work.region].inventory.set_standing(work.key, work.standing)
            case EventKind.EVICTED | EventKind.COMPLETED:
                self._end(event)
            case EventKind.MACHINE_DRAINING | EventKind.MACHINE_UP | EventKind.MACHINE_DOWN:
                inventory = self._simulated.members[self._regions[region_of(event)]].inventory
                inventory.set_machine_state(MachineId(str(event.details["machine"])), MACHINE_STATES[event.event])
            case _:
                pass  # what is ranked or waits is for the drivers to decide

    def _work(self, event: Event) -> SimulatedWorkload:
        if event.workload is None:
            raise ValueError(f"an event without a workload: {event}")
        return self._by_name[event.workload]

    def _dispatch(self, event: Event) -> None:
        work, placements = self._work(event), placements_of(event)
        self._queue.remove(work)
        work.key = key_of(event)
        work.attempts = work.key.attempt
        work.region = self._regions[region_of(event)]
        work.standing = Standing(event.priority or 0, event.level or 0)
        work.within_quota = bool(event.details["within_quota"])
        work.guaranteed = bool(event.details.get("guaranteed", event.details["within_quota"]))
        work.dispatched_s, work.started_s = event.t, math.nan
        work.state = State.DISPATCHED
        work.cpus = sum(placement.millicpus for placement in placements) / 1000
        for victim in victims_of(event):
            self._leave(self._by_name[victim.workload])
        inventory = self._simulated.members[work.region].inventory
        inventory.hold(
            Holding(
                work.key,
                work.standing,
                event.t,
                placements,
                checkpoint_interval_s=work.checkpoint_every_s,
            )
        )
        self._scanner.columns.dispatch(work)
        self._hold(work, 1, event.t)

    def _leave(self, work: SimulatedWorkload) -> None:
        work.state = State.PREEMPTING
        self._scanner.columns.leave(work)
        self._simulated.members[work.region].inventory.begin_eviction(work.key)

    def _end(self, event: Event) -> None:
        work = self._work(event)
        self._simulated.members[work.region].inventory.release(work.key)
        self._scanner.columns.end(work)
        self._hold(work, -1, event.t)
        work.state = State.COMPLETED
        if event.event is EventKind.EVICTED:
            work.state = State.PENDING
            self._queue.add(work, event.t)

    def _hold(self, work: SimulatedWorkload, sign: int, now: float) -> None:
        self._use.change(work.tenant, sign * float(work.gpus), sign * work.cpus, now)

    # What is decided.

    def decide(self, now: float) -> Decisions:
        """A scan pass and its auctions. Ranks are kept; what is dispatched is not: the recorded course goes on."""
        columns = self._scanner.columns
        pending, plan = self._scanner.scan(now)
        regions = self._like_the_present()
        reclassified = []
        for change in plan.reclassifications:
            reclassified.append(Reclassified(change.key, change.within_quota, change.standing))
            work = self._by_name[change.key.workload]
            regions.members[work.region].inventory.set_standing(work.key, change.standing)
        for entry in columns.with_news(pending, plan).tolist():
            work = self._works[int(pending[entry])]
            work.standing = Standing(int(plan.priority[entry]), int(plan.level[entry]))
            work.within_quota = bool(plan.within_quota[entry])
        columns.store(pending, plan)
        self._queue.rank(pending[plan.order])
        positions = []
        self._queue.begin_pass()
        for waiting in self._queue.in_order():
            position = QueuePosition(
                waiting.workload.workload, waiting.standing, waiting.credit, waiting.submitted_s, waiting.within_quota
            )
            positions.append(position)
        dispatched = self._auction(regions, now)
        won = {one.workload for one in dispatched}
        left = tuple(position.workload for position in positions if position.workload not in won)
        return Decisions(tuple(reclassified), tuple(positions), dispatched, left)

    def _like_the_present(self) -> SimulatedRegions:
        """Other regions in which the same is held. A deep copy would be no copy: tables of a region are views of others."""
        regions = SimulatedRegions(self._run.fleet, Catalog(self._run.tables))
        for present, member in zip(self._simulated.members, regions.members, strict=True):
            before, after = present.inventory, member.inventory
            for machine in before.machine_ids:
                if (state := before.machine_state(machine)) is not after.machine_state(machine):
                    after.set_machine_state(machine, state)
            for holding in sorted(before.holdings(), key=lambda holding: not before.is_leaving(holding.key)):
                after.hold(holding)
                if before.is_leaving(holding.key):
                    after.begin_eviction(holding.key)
        return regions

    def _auction(self, regions: SimulatedRegions, now: float) -> tuple[DispatchDecision, ...]:
        dispatched: list[DispatchDecision] = []

        def dispatch(work: SimulatedWorkload, win: Win) -> None:
            member = regions.members[win.region]
            apply_plan(member.inventory, win.plan, now, win.lot)
            dispatched.append(
                DispatchDecision(
                    work.workload.workload, member.region, ordered(win.plan.placements), win.plan.evictions
                )
            )

        auction_by_queue_pass(self._queue, regions, dispatch, now)
        return tuple(dispatched)


class Kinds:
    """Numbers workloads that ask for the same in the same places."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}

    def kind_of(self, index: int, specification: WorkloadSpecification, eligible: tuple[int, ...]) -> int:
        """The simulator's traces have workloads of one job only. Several jobs that found no room together might still
        find some with less room around, so nothing is concluded from such a workload for others."""
        asked = tuple((job.tasks, job.resources) for job in specification.jobs)
        return self._numbers.setdefault((asked, eligible) if len(asked) == 1 else index, len(self._numbers))


def auction_by_queue_pass(
    queue: WorkloadQueue, regions: SimulatedRegions, dispatch: Callable[[SimulatedWorkload, Win], None], now: float
) -> None:
    """One auction after the other along the queue, as the policy `mast` has it."""
    # Whose use of what is only for policies that ask.
    queue_pass = SimulatedQueuePass(
        queue,
        regions,
        OneWorkload(MAST.ordering, None, ServiceHistory(), scans=MAST.scans),
        dispatch,
        list,
        [],
        QueuePassFacts([], 0, 0.0, CostSettings(), AskedCapacity(regions, ())),
    )
    queue_pass.begin(now)
    MAST.allocation.allocate(queue_pass)
