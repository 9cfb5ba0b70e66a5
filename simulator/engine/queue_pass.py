"""One pass along the queue: what allocation policies may do (`simulator.policies.allocation.QueuePass`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

from domain.identifiers import MachineId
from domain.life_cycle import State
from domain.placement import Score
from domain.plan import Plan
from domain.rank import Standing
from domain.time_limit import longest_attempt_s
from regional_scheduler.plan_application import apply_plan
from regional_scheduler.planner import plan_workload
from regional_scheduler.refusals.kinds import HopelessKinds
from regional_scheduler.rounds import Lot
from simulator.engine.asked_capacity import AskedCapacity
from simulator.engine.one_workload import OneWorkload
from simulator.engine.queues import WorkloadQueue
from simulator.engine.regions import SimulatedRegions, Win
from simulator.engine.settings import CostSettings
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.allocation import ExpectedRelease, Reservation
from simulator.policies.work import Work


@dataclass(frozen=True, slots=True)
class QueuePassFacts:
    """What does not change in a run."""

    weight_of_tenants: Sequence[float]
    fleet_gpus: int
    fleet_cpus: float
    costs: CostSettings
    asked: AskedCapacity


class SimulatedQueuePass:
    """The queue at one moment. Made once; `begin` makes it new."""

    def __init__(
        self,
        queue: WorkloadQueue,
        regions: SimulatedRegions,
        one: OneWorkload,
        dispatch: Callable[[SimulatedWorkload, Win], None],
        running: Callable[[], Sequence[SimulatedWorkload]],
        use_of_tenants: Sequence[int],
        facts: QueuePassFacts,
    ) -> None:
        self._queue = queue
        self._regions = regions
        self._one = one
        self._standings_now: dict[int, Standing] = {}
        """At what workloads wait in this pass, by index, where their levels move with time."""
        self._dispatch = dispatch
        self._running = running
        self._use_of_tenants = use_of_tenants
        self._facts = facts
        self._cpus_of_tenants: list[float] = []
        self._releases = -1
        """How often capacity had been released when the hopeless were last passed over."""
        self._hopeless: HopelessKinds[tuple[int, bool]] = HopelessKinds()
        """By kind and side of the quota, since the last release."""
        self._nothing_released = False
        """Whether nothing was, when they were passed over in this pass: else nothing is known, and each kind is asked once."""
        self._looks_at_heads = False
        self._too_long: set[tuple[int, int]] = set()
        self._kept_machines: dict[int, frozenset[MachineId]] = {}
        """Where the last plan for a workload that has a reservation puts it, by its index."""
        self.now = 0.0
        self.refused: list[SimulatedWorkload] = []
        """Workloads without a place so far in this pass; of those that wait already some are left out."""

    def begin(self, now: float) -> None:
        self.now = now
        self.refused = []
        self._cpus_of_tenants = []
        self._standings_now = {}
        self._looks_at_heads = False
        self._too_long = set()
        self._kept_machines = {}
        self._regions.begin_pass(now)
        self._queue.begin_pass()

    def pass_over_hopeless(self) -> None:
        releases = 0
        for member in self._regions.members:
            releases += member.inventory.releases
        self._nothing_released = releases == self._releases
        if not self._nothing_released:
            self._releases = releases
            self._hopeless.clear()
        again = self._nothing_released and not self._one.moves_with_time
        known = self._queue.block_kinds(self._finds_nothing, again=again)
        self._regions.lookups += known

    def _finds_nothing(self, work: SimulatedWorkload) -> bool:
        # Where nothing was released since, who found nothing then, at this standing or a better one, finds nothing now.
        alike, standing = (work.kind, work.within_quota), self.standing_of(work)
        if self._nothing_released and self._hopeless.finds_nothing(alike, standing):
            self._regions.lookups += len(work.eligible)
        elif self._regions.refuses(work, standing):
            self._hopeless.learn(alike, standing)
        else:
            return False
        if work.state is State.PENDING:
            self.refused.append(work)
        return True

    def next(self) -> SimulatedWorkload | None:
        return self._queue.next()

    def heads(self) -> Sequence[SimulatedWorkload]:
        self._looks_at_heads = True
        return self._queue.heads()

    def in_order(self) -> Iterator[SimulatedWorkload]:
        return self._queue.in_order()

    # Starting.

    def start(self, work: Work) -> bool:
        simulated = cast(SimulatedWorkload, work)
        return self._start_among(simulated, simulated.eligible)

    def start_in(self, work: Work, region: int) -> bool:
        simulated = cast(SimulatedWorkload, work)
        win = self._regions.auction(simulated, self.standing_of(simulated), (region,), self.now)
        if win is None:
            return False
        self._launch(simulated, win)
        return True

    def _start_among(self, work: SimulatedWorkload, regions: Sequence[int]) -> bool:
        win = self._regions.auction(work, self.standing_of(work), regions, self.now)
        if win is not None:
            self._launch(work, win)
            return True
        self._refuse(work)
        return False

    def _refuse(self, work: SimulatedWorkload) -> None:
        # Without memory of refusals every workload is planned; but heads are of kinds of which none was refused.
        if self._regions.keeps_refusals or self._looks_at_heads:
            self._queue.block(work)
        self.refused.append(work)

    def _launch(self, work: SimulatedWorkload, win: Win) -> None:
        self._dispatch(work, win)
        if self._cpus_of_tenants:
            self._cpus_of_tenants[work.tenant] += work.cpus

    def standing_of(self, work: SimulatedWorkload) -> Standing:
        """At what it waits now."""
        if not self._one.moves_with_time:
            return work.standing
        standing = self._standings_now.get(work.index)
        if standing is None:
            standing = Standing(work.standing.priority, self._one.queued_level(work, self.now))
            self._standings_now[work.index] = standing
        return standing

    def lot_of(self, work: SimulatedWorkload) -> Lot:
        """The workload as it is put up for auction now."""
        return work.lot_at(self.standing_of(work))

    # What tenants have.

    def use_of_tenant(self, tenant: int) -> int:
        return self._use_of_tenants[tenant]

    def cpus_of_tenant(self, tenant: int) -> float:
        if not self._cpus_of_tenants:
            held = [0.0] * len(self._use_of_tenants)
            for attempt in self._running():
                held[attempt.tenant] += attempt.cpus
            self._cpus_of_tenants = held
        return self._cpus_of_tenants[tenant]

    def weight_of_tenant(self, tenant: int) -> float:
        return self._facts.weight_of_tenants[tenant]

    @property
    def fleet_gpus(self) -> int:
        return self._facts.fleet_gpus

    @property
    def fleet_cpus(self) -> float:
        return self._facts.fleet_cpus

    # What is asked for.

    def dominant_share(self, work: Work) -> float:
        return self._facts.asked.dominant_share(cast(SimulatedWorkload, work))

    def size(self, work: Work) -> float:
        return self._facts.asked.size(cast(SimulatedWorkload, work))

    def alignment(self, work: Work) -> float | None:
        return self._facts.asked.alignment(cast(SimulatedWorkload, work))

    # What regions have.

    def idle_gpus(self, region: int) -> int:
        return self._regions.idle_gpus(region)

    def expected_ends(self, region: int) -> Sequence[ExpectedRelease]:
        now = self.now
        ends = []
        for attempt in self._running():
            if attempt.region == region:
                # The usual case of `expected_end_s`: there are many of these.
                end_s = attempt.started_s + (attempt.work_s - attempt.progress - attempt.gained_s)
                if not now <= end_s <= attempt.limit_reached_s:
                    end_s = self.expected_end_s(attempt)
                ends.append(ExpectedRelease(end_s, attempt.index, attempt.gpus))
        ends.sort()
        return ends

    def run_time_s(self, work: Work) -> float:
        simulated = cast(SimulatedWorkload, work)
        return self._set_up_s(simulated, simulated.attempts + 1) + simulated.remaining_s

    def expected_end_s(self, attempt: SimulatedWorkload) -> float:
        """When the attempt will be over if nothing comes between."""
        started = attempt.started_s == attempt.started_s
        since_s = attempt.started_s if started else attempt.dispatched_s + self._set_up_s(attempt, attempt.attempts)
        lasts_s = min(attempt.remaining_s, longest_attempt_s(attempt.workload.specification))
        return max(self.now, since_s + lasts_s)

    def _set_up_s(self, work: SimulatedWorkload, attempt: int) -> float:
        """From the dispatch of an attempt to its work, if it evicts nothing."""
        costs = self._facts.costs
        return costs.container_start_s + (costs.restore_s if attempt > 1 and work.progress > 0 else 0.0)

    # Trying out.

    def regions_with_room(self, work: Work) -> Sequence[int]:
        simulated = cast(SimulatedWorkload, work)
        standing, auction = self.standing_of(simulated), self._regions.auction
        found = [
            region for region in simulated.eligible if auction(simulated, standing, (region,), self.now) is not None
        ]
        if not found:
            self._refuse(simulated)
        return found

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        with ExitStack() as undone:
            for member in self._regions.members:
                undone.enter_context(member.inventory.tentatively())
            yield

    def try_in(self, work: Work, region: int) -> Score | None:
        plan = self._plan(cast(SimulatedWorkload, work), region)
        if plan is None:
            return None
        lot = self.lot_of(cast(SimulatedWorkload, work))
        apply_plan(self._regions.members[region].inventory, plan, self.now, lot)
        return plan.score

    # Plans for later times.

    def earliest_start(self, work: Work) -> Reservation | None:
        simulated = cast(SimulatedWorkload, work)
        best: Reservation | None = None
        for region in simulated.eligible:
            found = self._earliest_start_in(simulated, region)
            if found is not None and (best is None or found[0] < best.start_s):
                best = Reservation(region, found[0])
                self._kept_machines[work.index] = _machines_of(found[1])
        return best

    def start_beside(self, work: Work, kept_for: Work, reservation: Reservation) -> bool:
        simulated = cast(SimulatedWorkload, work)
        region = reservation.region
        in_time = self.now + self.run_time_s(work) <= reservation.start_s
        if in_time or region not in simulated.eligible:
            return self._start_among(simulated, simulated.eligible)
        standing = self.standing_of(simulated)
        if (simulated.shape, kept_for.index) not in self._too_long:
            win = self._regions.auction(simulated, standing, simulated.eligible, self.now)
            if win is None:
                self._refuse(simulated)
                return False
            if win.region != region or self._leaves_room(win, kept_for, reservation):
                self._launch(simulated, win)
                return True
            # Shorter ones of this shape may start there; of those that last as long, none.
            self._too_long.add((simulated.shape, kept_for.index))
        others = [other for other in simulated.eligible if other != region]
        win = self._regions.auction(simulated, standing, others, self.now) if others else None
        if win is None:
            return False
        self._launch(simulated, win)
        return True

    def _leaves_room(self, win: Win, kept_for: Work, reservation: Reservation) -> bool:
        """Whether the other one finds room at its time with this one placed."""
        kept = self._kept_machines.get(kept_for.index)
        if kept is not None and kept.isdisjoint(_machines_of(win.plan)):
            return True
        inventory = self._regions.members[win.region].inventory
        with inventory.tentatively():
            apply_plan(inventory, win.plan, self.now, win.lot)
            for attempt in self._running():
                if attempt.region == win.region and self.expected_end_s(attempt) <= reservation.start_s:
                    inventory.release(attempt.key)
            plan = self._plan(cast(SimulatedWorkload, kept_for), win.region)
        if plan is not None:
            self._kept_machines[kept_for.index] = _machines_of(plan)
        return plan is not None

    def _earliest_start_in(self, work: SimulatedWorkload, region: int) -> tuple[float, Plan] | None:
        """Releases what runs there in the order of its expected end, until the workload finds room: when, and how."""
        inventory = self._regions.members[region].inventory
        ends = sorted(
            (self.expected_end_s(attempt), attempt.index, attempt)
            for attempt in self._running()
            if attempt.region == region
        )
        idle_gpus = self._regions.idle_gpus(region)
        with inventory.tentatively():
            for position, (end_s, _, attempt) in enumerate(ends):
                inventory.release(attempt.key)
                idle_gpus += attempt.gpus
                last_at_once = position + 1 == len(ends) or ends[position + 1][0] > end_s
                if last_at_once and idle_gpus >= work.gpus:
                    plan = self._plan(work, region)
                    if plan is not None:
                        return end_s, plan
        return None

    def _plan(self, work: SimulatedWorkload, region: int) -> Plan | None:
        """Asks the planner itself: the negative cache knows nothing of what is tentative."""
        inventory = self._regions.members[region].inventory
        standing = self.standing_of(work)
        plan = plan_workload(inventory, work.workload, standing, self.now, within_quota=work.within_quota)
        return plan if isinstance(plan, Plan) else None


def _machines_of(plan: Plan) -> frozenset[MachineId]:
    return frozenset(placement.machine for placement in plan.placements)
