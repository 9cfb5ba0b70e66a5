"""Small random worlds for the auction: fleets, tables, queues over several scan passes, and two ways to auction them.

`auction_in_rounds` is the real thing, driven as the services drive it. `auction_one_at_a_time` is its dumb twin: one
queue, one workload after the other, every region plans on its real inventory, the best score wins and is placed at
once; no window, no hints, no tentative placement, no negative cache.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from data_placement.catalog import Catalog
from domain.diagnosis import Reason
from domain.fleet import Cluster, Fleet, Machine, MachineState, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, Holding, TaskPlacement
from domain.plan import Plan
from domain.rank import QueuePosition, Standing
from domain.resources import TaskResources
from domain.table import Table
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from regional_scheduler.auction import AwaitingData, NotYet, RoundOutcome, Verdict, Waiting, Won, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch
from regional_scheduler.eligibility import abandonment
from regional_scheduler.hosting import EmptyRegion
from regional_scheduler.planner import plan_workload
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.round_opening import continue_round, open_round
from regional_scheduler.rounds import AuctionSettings, Lot, Round

PASSES = 3
PASS_INTERVAL_S = 300.0
ANSWER_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class OfferedWorkload:
    """A workload that enters the queue: with which standing and credit, and for how many scan passes it runs."""

    workload: Workload
    standing: Standing
    credit: float
    runs_for_passes: int


@dataclass(frozen=True, slots=True)
class WorldPlan:
    """Everything that will happen to a world from outside. `arrivals[i]` and `failures[i]` come before scan pass i."""

    fleet: Fleet
    tables: tuple[Table, ...]
    arrivals: tuple[tuple[OfferedWorkload, ...], ...]
    failures: tuple[tuple[MachineId, ...], ...]

    @property
    def regions(self) -> tuple[RegionId, ...]:
        return tuple(region.region for region in self.fleet.regions)


@dataclass(frozen=True, slots=True)
class Ruled:
    """What became of one workload in one scan pass: the things in which both ways must agree."""

    scan_pass: int
    workload: WorkloadId
    kind: str
    region: RegionId | None
    placements: tuple[TaskPlacement, ...]
    evictions: tuple[AttemptKey, ...]


@dataclass(slots=True)
class History:
    """What happened in a world, and what was left at its end."""

    ruled: list[Ruled] = field(default_factory=list)
    holdings: dict[RegionId, tuple[Holding, ...]] = field(default_factory=dict)
    rounds: int = 0
    absences: dict[tuple[int, WorkloadId], frozenset[RegionId]] = field(default_factory=dict)
    """By scan pass and workload: the regions that were absent from the round that decided it."""


@dataclass(slots=True)
class Entry:
    """A workload in the queue or running."""

    arrival: OfferedWorkload
    attempts: int = 0
    region: RegionId | None = None
    ends_after_pass: int = -1


class AuctionWorld:
    """The state that both ways share: inventories, the queue, and what happens between scan passes."""

    def __init__(self, plan: WorldPlan) -> None:
        self.plan = plan
        self.catalog = Catalog(plan.tables)
        self.regions = {region.region: region for region in plan.fleet.regions}
        self.inventories = {name: RegionCapacity(region) for name, region in self.regions.items()}
        self.entries: dict[WorkloadId, Entry] = {}
        self.history = History()
        self._leaving: list[tuple[RegionId, AttemptKey]] = []

    def run(self, auction_pass: Callable[[int, tuple[Lot, ...], float], None]) -> History:
        for scan_pass in range(len(self.plan.arrivals)):
            now = (scan_pass + 1) * PASS_INTERVAL_S
            self._between_passes(scan_pass)
            auction_pass(scan_pass, self.queue(), now)
        for inventory in self.inventories.values():
            inventory.check()
        self.history.holdings = {name: inventory.holdings() for name, inventory in self.inventories.items()}
        return self.history

    def rule(self, scan_pass: int, lot: Lot, kind: str, region: RegionId | None, plan: Plan | None) -> None:
        """Records a ruling; a dispatched workload leaves the queue and its victims will come back to it."""
        placements = plan.placements if plan is not None else ()
        evictions = plan.evictions if plan is not None else ()
        self.history.ruled.append(Ruled(scan_pass, lot.workload.workload, kind, region, placements, evictions))
        if plan is not None:
            entry = self.entries[lot.workload.workload]
            entry.attempts = lot.attempt
            entry.region = region
            entry.ends_after_pass = scan_pass + entry.arrival.runs_for_passes
            self._leaving.extend((plan.region, victim) for victim in evictions)

    def _between_passes(self, scan_pass: int) -> None:
        """Victims have left and are in the queue again, finished workloads are gone, machines failed, others arrive."""
        for loser, victim in self._leaving:
            self.inventories[loser].release(victim)
            self.entries[victim.workload].region = None
        self._leaving = []
        for workload, entry in list(self.entries.items()):
            if entry.region is not None and entry.ends_after_pass < scan_pass:
                self.inventories[entry.region].release(AttemptKey(workload, AttemptNumber(entry.attempts)))
                del self.entries[workload]
        for machine in self.plan.failures[scan_pass]:
            for name, inventory in self.inventories.items():
                if all(candidate.machine != machine for candidate in self.regions[name].machines()):
                    continue
                for key in inventory.set_machine_state(machine, MachineState.DOWN):
                    inventory.release(key)
                    self.entries[key.workload].region = None
        for arrival in self.plan.arrivals[scan_pass]:
            self.entries[arrival.workload.workload] = Entry(arrival)

    def queue(self) -> tuple[Lot, ...]:
        lots = (
            Lot(
                workload=entry.arrival.workload,
                position=QueuePosition(
                    workload=name,
                    standing=entry.arrival.standing,
                    credit=entry.arrival.credit,
                    submitted_s=entry.arrival.workload.submitted_s,
                    within_quota=entry.arrival.standing.priority < 6,
                ),
                attempt=AttemptNumber(entry.attempts + 1),
            )
            for name, entry in self.entries.items()
            if entry.region is None
        )
        return tuple(sorted(lots, key=lambda lot: lot.position.sort_key))


Absence = Callable[[int], frozenset[RegionId]]
"""By number of the round: the participants that do not answer it."""
Mislead = Callable[[Lot], Lot]
"""Puts another hint on a lot."""
Watch = Callable[[AuctionWorld, RoundOutcome, float], None]
"""Looks at what a round has come to, before that is carried out."""


def auction_in_rounds(
    plan: WorldPlan,
    window: int,
    absence: Absence | None = None,
    mislead: Mislead | None = None,
    watch: Watch | None = None,
    asked: int | None = None,
) -> History:
    """Drives rounds as the services do: open, answer, close, confirm, until the scan pass is exhausted.

    `asked`: so many lots of a round are asked at first, and it is continued until all are decided.
    """
    world = AuctionWorld(plan)
    bidders = {
        name: RegionBidder(region, world.inventories[name], world.catalog) for name, region in world.regions.items()
    }

    def auction_pass(scan_pass: int, queue: tuple[Lot, ...], now: float) -> None:
        decided, outcome = 0, None
        while outcome is None or not outcome.exhausted:
            world.history.rounds += 1
            opened = open_round(
                number=world.history.rounds,
                scan_pass=scan_pass,
                now=now,
                settings=AuctionSettings(window, ANSWER_TIMEOUT_S),
                participants=plan.regions,
                upcoming=queue[decided : decided + window + 1],
                hints=outcome.hints() if outcome is not None else {},
                runs_alone=outcome is None or outcome.runs_alone,
                asked=asked,
            )
            if mislead is not None:
                opened = replace(opened, lots=tuple(mislead(lot) for lot in opened.lots))
            outcome = _hold(opened, bidders, absence(opened.number) if absence is not None else frozenset(), now)
            if asked is not None:
                outcome = _continued(opened, bidders, outcome, now, mislead)
            decided += len(outcome.verdicts)
            if watch is not None:
                watch(world, outcome, now)
            _carry_out(world, bidders, outcome, now)

    return world.run(auction_pass)


def _hold(
    opened: Round, bidders: dict[RegionId, RegionBidder], absent: frozenset[RegionId], now: float
) -> RoundOutcome:
    responses = [bidder.answer(opened, now) for name, bidder in bidders.items() if name not in absent]
    outcome = close_round(opened, responses, now)
    if absent:
        assert outcome == NotYet(tuple(sorted(absent)), opened.deadline_s)
        outcome = close_round(opened, responses, opened.deadline_s)
    assert isinstance(outcome, RoundOutcome)
    assert outcome.verdicts or not opened.lots, "a round must decide at least its first lot"
    return outcome


def _continued(
    opened: Round, bidders: dict[RegionId, RegionBidder], outcome: RoundOutcome, now: float, mislead: Mislead | None
) -> RoundOutcome:
    continued = continue_round(opened, outcome)
    while continued is not None:
        if mislead is not None:
            continued = replace(continued, lots=tuple(mislead(lot) for lot in continued.lots))
        responses = [bidder.answer(continued, now, lots_won(outcome, name)) for name, bidder in bidders.items()]
        then = close_round(continued, responses, now)
        assert isinstance(then, RoundOutcome)
        assert then.verdicts, "whoever is asked on decides at least one lot more"
        outcome = outcome.followed_by(then)
        continued = continue_round(continued, then)
    return outcome


def lots_won(outcome: RoundOutcome, region: RegionId) -> tuple[Lot, ...]:
    """The lots that this region has to dispatch, in queue order."""
    return tuple(one.lot for one in outcome.verdicts if isinstance(one, Won) and one.winner == region)


def _carry_out(world: AuctionWorld, bidders: dict[RegionId, RegionBidder], outcome: RoundOutcome, now: float) -> None:
    plans: dict[WorkloadId, Plan] = {}
    for region, bidder in bidders.items():
        for confirmation in bidder.confirm(lots_won(outcome, region), now):
            assert isinstance(confirmation, Dispatch), confirmation
            plans[confirmation.lot.workload.workload] = confirmation.plan
    for verdict in outcome.verdicts:
        name = verdict.lot.workload.workload
        world.history.absences[outcome.scan_pass, name] = frozenset(outcome.absent)
        winner = verdict.winner if isinstance(verdict, Won) else None
        world.rule(outcome.scan_pass, verdict.lot, kind_of(verdict), winner, plans.get(name))


def kind_of(verdict: Verdict) -> str:
    match verdict:
        case Won():
            return "won"
        case Waiting():
            return "waiting"
        case AwaitingData():
            return "awaiting data"


def auction_one_at_a_time(
    plan: WorldPlan, absences: dict[tuple[int, WorkloadId], frozenset[RegionId]] | None = None
) -> History:
    """The dumb twin. `absences` says which regions took no part in the auction of a workload in a scan pass."""
    world = AuctionWorld(plan)
    empty_regions = {name: EmptyRegion(region) for name, region in world.regions.items()}

    def auction_pass(scan_pass: int, queue: tuple[Lot, ...], now: float) -> None:
        for lot in queue:
            absent = (absences or {}).get((scan_pass, lot.workload.workload), frozenset())
            plans: list[Plan] = []
            only_data_missing, may_run = False, False
            for name in sorted(set(world.regions) - absent):
                abandoned = abandonment(empty_regions[name], lot.workload.specification, world.catalog)
                if abandoned is not None:
                    only_data_missing |= abandoned.reason is Reason.NO_DATA
                    continue
                may_run = True
                planned = plan_workload(
                    world.inventories[name],
                    lot.workload,
                    lot.position.standing,
                    now,
                    within_quota=lot.position.within_quota,
                )
                if isinstance(planned, Plan):
                    plans.append(planned)
            if plans:
                best = min(plans, key=lambda candidate: (candidate.score, candidate.region))
                _place(world.inventories[best.region], lot, best, now)
                world.rule(scan_pass, lot, "won", best.region, best)
            else:
                # What is unheard of may hold the data.
                kind = "awaiting data" if only_data_missing and not may_run and not absent else "waiting"
                world.rule(scan_pass, lot, kind, None, None)

    return world.run(auction_pass)


def _place(inventory: RegionCapacity, lot: Lot, plan: Plan, now: float) -> None:
    for victim in plan.evictions:
        inventory.begin_eviction(victim)
    inventory.hold(
        Holding(lot.key, lot.position.standing, now, plan.placements, tenant=lot.workload.specification.tenant)
    )


# ---------------------------------------------------------------- random worlds

PRIORITIES_OF_PASS = ((1, 3, 6, 6), (0, 1, 3, 6), (0, 0, 1, 3))
"""The later, the better: so that those who came first are evicted."""
MODELS = (GpuModel("a100"), GpuModel("v100"))


def random_world(seed: int) -> WorldPlan:
    """A world of one to four regions and about twenty workloads over three scan passes, crowded enough to preempt."""
    rng = random.Random(seed)
    fleet, tables = _random_fleet(rng)
    counter = iter(range(10_000))
    crowd = rng.choice((4, 8, 12))
    arrivals = tuple(
        tuple(_random_arrival(rng, fleet, tables, next(counter), scan_pass) for _ in range(rng.randint(1, crowd)))
        for scan_pass in range(PASSES)
    )
    machines = sorted(machine.machine for region in fleet.regions for machine in region.machines())
    failures = tuple(tuple(rng.sample(machines, 1)) if rng.random() < 0.15 else () for _ in range(PASSES))
    return WorldPlan(fleet, tables, arrivals, failures)


def _random_fleet(rng: random.Random) -> tuple[Fleet, tuple[Table, ...]]:
    names = tuple(RegionId(f"region-{letter}") for letter in "abcd"[: rng.randint(1, 4)])
    alike = rng.random() < 0.3
    template = rng.getstate()
    regions = []
    for name in names:
        if alike:
            rng.setstate(template)
        regions.append(Region(name, tuple(_random_clusters(rng, name))))
    tables = tuple(
        Table(
            TableId(f"table-{number}"), 10**9, rng.choice(names), tuple(rng.sample(names, rng.randint(0, len(names))))
        )
        for number in range(rng.randint(0, 3))
    )
    return Fleet(tuple(regions)), tables


def _random_clusters(rng: random.Random, region: RegionId) -> Iterator[Cluster]:
    for number in range(rng.randint(1, 3)):
        cluster = ClusterId(f"{region}/{number}")
        racks = []
        for rack in range(rng.randint(1, 2)):
            gpus = rng.choice((0, 2, 4, 8, 8))
            model = rng.choice(MODELS)
            racks.append(
                Rack(
                    RackId(f"{cluster}/{rack}"),
                    tuple(
                        Machine(
                            MachineId(f"{cluster}/{rack}/{machine}"),
                            model if gpus else GpuModel(""),
                            gpus,
                            cpus=float(rng.choice((8, 16))),
                            memory_gib=float(rng.choice((32, 64))),
                        )
                        for machine in range(rng.randint(1, 3))
                    ),
                )
            )
        yield Cluster(cluster, tuple(racks))


def _random_arrival(
    rng: random.Random, fleet: Fleet, tables: tuple[Table, ...], number: int, scan_pass: int
) -> OfferedWorkload:
    regions = tuple(region.region for region in fleet.regions)
    inputs = tuple(
        TableInput(table.table, fresh=rng.random() < 0.3)
        for table in rng.sample(tables, rng.choice((0, 0, 1, len(tables))) if tables else 0)
    )
    specification = WorkloadSpecification(
        name=f"workload-{number}",
        tenant=TenantId("tenant"),
        jobs=tuple(_random_job(rng, index) for index in range(rng.choice((1, 1, 1, 2, 3)))),
        tables=inputs,
        regions=tuple(rng.sample(regions, rng.randint(1, len(regions)))) if rng.random() < 0.15 else (),
    )
    return OfferedWorkload(
        workload=Workload(WorkloadId(f"w{number:03}"), specification, scan_pass * PASS_INTERVAL_S + rng.random()),
        standing=Standing(rng.choice(PRIORITIES_OF_PASS[scan_pass]), rng.choice((0, 0, 1))),
        credit=round(rng.random(), 1),
        runs_for_passes=rng.randint(1, PASSES),
    )


def _random_job(rng: random.Random, index: int) -> JobSpecification:
    gpus = rng.choice((0, 1, 1, 2, 2, 4, 4, 8))
    resources = TaskResources(
        gpus=gpus,
        gpu_model=rng.choice((ANY_GPU_MODEL, ANY_GPU_MODEL, *MODELS)),
        cpus=float(rng.randint(1, 6)) if gpus == 0 or rng.random() < 0.5 else None,
        memory_gib=float(rng.randint(1, 24)) if gpus == 0 or rng.random() < 0.5 else None,
    )
    return JobSpecification(
        name=JobName(f"job-{index}"),
        tasks=rng.choice((1, 1, 1, 2, 2, 3)),
        resources=resources,
        entry_point=Emulated(1.0),
        consolidate=rng.random() < 0.3,
    )


def without_regions(plan: WorldPlan, gone: frozenset[RegionId]) -> WorldPlan:
    """The same world if these regions had never been there (their tables' copies are nowhere)."""
    return replace(
        plan,
        fleet=replace(plan.fleet, regions=tuple(region for region in plan.fleet.regions if region.region not in gone)),
    )
