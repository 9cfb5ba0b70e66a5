"""The live service's decisions on a virtual clock: its scan loop, auctioneers, dispatching and records, on real PostgreSQL.

Only what decision 008 says may differ is ours: the clock stands still until the next thing happens, messages take no
time, and instead of an executor there is the simulator's price list.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster_manager.attempt_run.events import Progressed
from domain.clock import ManualClock
from domain.events import Event
from domain.fleet import Fleet
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.sensitivity import SensitivityProfile
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Emulated, Workload
from formats.scheduler_file import NO_TUNING, EstimatesSection, PrioritySection
from services.configuration import AuctionConfiguration, Configuration
from services.database import (
    catalog_store,
    event_store,
    fleet_store,
    lease_store,
    queue_store,
    reclassification_store,
    tenant_store,
    workload_store,
)
from services.database.engine import Database
from services.database.lease_store import Lease
from services.database.sensitivity_store import store_profiles
from services.database.workload_store import NewWorkload
from services.execution.executor import AttemptPhase, AttemptStatus
from services.global_scheduler.level_timer import LevelTimer
from services.global_scheduler.scan_loop import ScanLoop
from services.regional_scheduler.auction_turn import begin_turn
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.gang_reports import take_report
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.loading import load_memory
from services.regional_scheduler.recording import record_reports
from services.regional_scheduler.region_memory import RegionMemory
from services.regional_scheduler.reserving import Reserving
from services.wire.workloads import specification_to_proto
from simulator.engine.event_queue import Happens
from simulator.engine.settings import SimulationSettings
from tests.regional_scheduler_service.regions_of_one_process import RegionsOfOneProcess

_LONG_REAL_S = 600.0
_PAGE = 10_000


class VirtualClock(ManualClock):
    """A service's clock for which no test has to wait."""

    def real_seconds(self, duration_s: float) -> float:
        return 0.0 * duration_s


@dataclass(slots=True)
class _Region:
    memory: RegionMemory
    auctioneer: Auctioneer
    reserving: Reserving


@dataclass(slots=True)
class _Newcomer:
    """A dispatched attempt that has yet to start."""

    region: _Region
    attempt: LiveAttempt
    is_set_up: bool = False


@dataclass(slots=True)
class ServiceOnVirtualTime:
    """One run; make it with `open`."""

    database: Database
    settings: SimulationSettings
    clock: VirtualClock
    start_s: float
    scan_loop: ScanLoop
    level_timer: LevelTimer
    lease: Lease
    regions: list[_Region]
    configuration: Configuration = field(default_factory=Configuration)
    passes_of_one_global_tier: int | None = None
    passes: int = 0
    _happens: list[tuple[float, int, int, object]] = field(default_factory=list)
    _sequence: int = 0
    _news: bool = False
    _scan_due: bool = False
    _newcomers: dict[AttemptKey, _Newcomer] = field(default_factory=dict)

    @staticmethod
    async def open(
        database: Database,
        fleet: Fleet,
        tables: Sequence[Table],
        tenants: Sequence[Tenant],
        settings: SimulationSettings,
        start_s: float,
        window: int,
        priorities: Mapping[int, PrioritySection] | None = None,
        passes_of_one_global_tier: int | None = None,
        tuning: str = NO_TUNING,
        profiles: Mapping[str, SensitivityProfile] | None = None,
    ) -> ServiceOnVirtualTime:
        """A service over an empty database, with a session of every region. No round retunes what runs.

        After so many passes the global tier starts anew, from the database; None: it never does.
        """
        clock = VirtualClock(start_s)
        configuration = Configuration(
            auction=AuctionConfiguration(window=window, answer_timeout_real_s=_LONG_REAL_S),
            priorities=dict(priorities or {}),
            eviction=settings.eviction,
            tuning=tuning,
            estimates=EstimatesSection(),
        )
        await database.run(lambda connection: fleet_store.apply_fleet(connection, fleet))
        await database.run(lambda connection: catalog_store.apply_tables(connection, tables))
        await database.run(lambda connection: tenant_store.apply_tenants(connection, tenants))
        await database.run(lambda connection: store_profiles(connection, profiles or {}))
        lease = await _lease(database, lease_store.GLOBAL_LEASE)
        rule = settings.reservations.rule()
        regions = []
        others = RegionsOfOneProcess()
        for region in fleet.regions:
            async with database.transaction() as connection:
                memory = await load_memory(
                    connection,
                    region.region,
                    configuration.eviction_rule(),
                    mechanism=configuration.tuning_mechanism(),
                    reservations=rule,
                )
            if memory is None:
                raise ValueError(f"there is no region {region.region}")
            held = await _lease(database, f"{lease_store.REGIONAL_PREFIX}{region.region}")
            auctioneer = Auctioneer(database, held, memory, clock, configuration.auction, others.ask)
            others.add(region.region, auctioneer)
            regions.append(_Region(memory, auctioneer, Reserving(database, held, memory, clock, rule)))
        scan_loop = ScanLoop(database, clock, configuration)
        level_timer = LevelTimer(database, clock, configuration)
        service = ServiceOnVirtualTime(database, settings, clock, start_s, scan_loop, level_timer, lease, regions)
        service.configuration = configuration
        service.passes_of_one_global_tier = passes_of_one_global_tier
        return service

    # Time.

    async def run(
        self, workloads: Sequence[Workload], look_before_pass: Callable[[float], Awaitable[None]] | None = None
    ) -> list[Event]:
        """Submits them when they are due and runs until all have ended; the service's own event log.

        `look_before_pass` is called before every scan pass, when everything else of that instant has happened.
        """
        for workload in workloads:
            self._at(workload.submitted_s, Happens.SUBMISSION, workload)
        while self._happens:
            now = self._happens[0][0]
            self.clock.advance_to(now)
            while self._happens and self._happens[0][0] <= now:
                _, kind, _, subject = heapq.heappop(self._happens)
                if kind == Happens.SCAN_PASS and look_before_pass is not None:
                    await look_before_pass(now)
                await self._take(Happens(kind), subject, now)
            if self._news:
                await self._schedule_pass(now)
        async with self.database.transaction() as connection:
            page = await event_store.read(connection, 0, _PAGE)
        return [stored.event for stored in page.events]

    def _at(self, time_s: float, kind: Happens, subject: object) -> None:
        self._sequence += 1
        heapq.heappush(self._happens, (time_s, int(kind), self._sequence, subject))

    async def _schedule_pass(self, now: float) -> None:
        """Passes are at multiples of the period, when there is something new and something is queued."""
        self._news = False
        if self._scan_due or not await self.database.run(queue_store.count_queued):
            return
        period_s = self.settings.scan_period_s
        due_s = self.start_s + math.ceil((now - self.start_s) / period_s) * period_s
        self._scan_due = True
        self._at(max(now, due_s), Happens.SCAN_PASS, None)

    async def _take(self, kind: Happens, subject: object, now: float) -> None:
        match kind, subject:
            case Happens.SUBMISSION, Workload():
                await self._submit(subject)
            case Happens.SCAN_PASS, _:
                await self._scan(now)
            case Happens.START, _Newcomer():
                await self._start(subject, now)
                self._at(now, Happens.LEVEL_CHANGE, None)
            case Happens.PROMOTION, _:
                self._news = True
            case Happens.LEVEL_CHANGE, _:
                await self._change_levels()
            case Happens.COMPLETION | Happens.VACATED, (_Region() as region, LiveAttempt() as attempt):
                await self._end(region, attempt, kind, now)
            case _:
                raise ValueError(f"nothing is known of {kind} of {subject}")

    # What happens.

    async def _submit(self, workload: Workload) -> None:
        specification = specification_to_proto(workload.specification).SerializeToString()
        submission = NewWorkload(
            workload.workload, workload.specification, specification, workload.submitted_s, None, None
        )
        await self.database.run(lambda connection: workload_store.insert_submissions(connection, [submission]))
        self._news = True

    async def _start(self, newcomer: _Newcomer, now: float) -> None:
        attempt = newcomer.attempt
        if attempt.state is not State.DISPATCHED:
            return
        del self._newcomers[attempt.key]
        kept = attempt.run.facts.progress_at_start
        await self._report(newcomer.region, attempt, AttemptPhase.RUNNING, kept, now)
        remaining_s = _work_s(attempt) - kept
        self._at(now + remaining_s / _rate(attempt), Happens.COMPLETION, (newcomer.region, attempt))

    async def _end(self, region: _Region, attempt: LiveAttempt, kind: Happens, now: float) -> None:
        completed = kind is Happens.COMPLETION
        if completed and attempt.state is not State.RUNNING:
            return
        progress = _work_s(attempt) if completed else attempt.run.progress
        await self._report(
            region, attempt, AttemptPhase.COMPLETED if completed else AttemptPhase.STOPPED, progress, now
        )
        region.memory.inventory.release(attempt.key)
        region.memory.live.remove(attempt.key)
        self._news = True
        self._set_up_unblocked(now)

    async def _report(
        self, region: _Region, attempt: LiveAttempt, phase: AttemptPhase, progress: float, now: float
    ) -> None:
        """What the clusters would report goes the service's way into its database."""
        started_s = now if phase is AttemptPhase.RUNNING else attempt.started_s or 0.0
        status = AttemptStatus(attempt.key, phase, now, progress, progress, 1.0, "", True, started_s)
        for cluster in attempt.clusters:
            attempt.reports[cluster] = status
        take_report(attempt, status, now)
        name = region.memory.region.region
        recorded = await self.database.run(lambda connection: record_reports(connection, name, [attempt], [], now))
        for key, run in recorded.runs.items():
            region.memory.live.move(key, run)

    # What is decided.

    async def _scan(self, now: float) -> None:
        self._scan_due = False
        self._news = False
        if not await self.database.run(queue_store.count_queued):
            return
        self.passes += 1
        if self.passes_of_one_global_tier is not None and self.passes % self.passes_of_one_global_tier == 0:
            self.scan_loop = ScanLoop(self.database, self.clock, self.configuration)
            self.level_timer = LevelTimer(self.database, self.clock, self.configuration)
        due_s = await self.scan_loop.run_pass(self.lease)
        if due_s is not None:
            self._at(max(now, due_s), Happens.PROMOTION, None)
        for region in self.regions:
            await self._take_over_standings(region)
        for region in self.regions:
            # As sessions do when capacity was released, or time has passed.
            region.memory.inventory.pass_time(now)
            await region.auctioneer.object_to_refusals()
        moved = True
        while moved:
            moved = any([await self._step(region, now) for region in self.regions])
        for region in self.regions:
            await self._look_at_reservations(region, now)

    async def _look_at_reservations(self, region: _Region, now: float) -> None:
        """As a session does; what it opens is news."""
        reserved = region.memory.inventory.reserved
        opened = reserved.opened
        await region.reserving.look(now)
        self._news |= reserved.opened != opened

    async def _change_levels(self) -> None:
        """The timer goes off: as in the service when an attempt has started, and when one crosses into another level."""
        if not self.level_timer.needed:
            return
        next_change_s = await self.level_timer.change_levels(self.lease)
        for region in self.regions:
            await self._take_over_standings(region)
        if not math.isinf(next_change_s):
            self._at(next_change_s, Happens.LEVEL_CHANGE, None)

    async def _take_over_standings(self, region: _Region) -> None:
        """As a session does when a pass has re-classified some of its attempts."""
        memory = region.memory
        async with self.database.transaction() as connection:
            standings = await reclassification_store.standings(connection, memory.region.region)
        for key, (standing, within_quota) in standings.items():
            attempt = memory.live.get(key)
            if attempt is not None and (attempt.standing, attempt.within_quota) != (standing, within_quota):
                memory.inventory.set_standing(key, standing)
                attempt.standing, attempt.within_quota = standing, within_quota
                self._news = True

    async def _step(self, region: _Region, now: float) -> bool:
        """Dispatches what the region has won, then takes a step in the auction."""
        memory = region.memory
        turn = await begin_turn(self.database, memory, region.auctioneer, self.clock)
        if not turn.goes_on:
            raise ValueError("nothing is applied meanwhile, and few are won at once")
        dispatched = turn.dispatched
        if dispatched is None:
            return (await region.auctioneer.go_on(turn.looked, turn.lots)).moved
        if dispatched.given_back:
            raise ValueError("what was won has room")
        for attempt in dispatched.attempts:
            memory.live.add(attempt)
        for key, eviction in dispatched.writes.evictions:
            memory.live.begin_eviction(key, eviction, now)
            if eviction.by is None:
                raise ValueError(f"no newcomer needs the room of {key}")
            self._leave(region, key, now)
        for attempt in dispatched.attempts:
            self._newcomers[attempt.key] = _Newcomer(region, attempt)
        self._set_up_unblocked(now)
        return (await region.auctioneer.go_on(turn.looked, turn.lots)).moved or bool(dispatched.attempts)

    # The price list.

    def _leave(self, region: _Region, key: AttemptKey, now: float) -> None:
        """It works no more, and saves what it has done if it had started."""
        attempt = region.memory.live.get(key)
        if attempt is None:
            raise ValueError(f"{key} is not live")
        self._newcomers.pop(key, None)
        save_s = 0.0
        if attempt.started_s is not None:
            kept = attempt.run.facts.progress_at_start
            attempt.take(
                Progressed(now, min(_work_s(attempt), kept + _rate(attempt) * (now - attempt.started_s)), kept)
            )
            save_s = self.settings.costs.checkpoint_save_s
        self._at(now + save_s, Happens.VACATED, (region, attempt))

    def _set_up_unblocked(self, now: float) -> None:
        """What is dispatched and has nobody in its way any more begins to be set up, as sessions do."""
        for newcomer in self._newcomers.values():
            if not newcomer.is_set_up and not newcomer.region.memory.live.blocked(newcomer.attempt):
                newcomer.is_set_up = True
                self._set_up(newcomer, now)

    def _set_up(self, newcomer: _Newcomer, now: float) -> None:
        costs = self.settings.costs
        restore_s = costs.restore_s if newcomer.attempt.run.facts.progress_at_start > 0 else 0.0
        self._at(now + costs.container_start_s + restore_s, Happens.START, newcomer)


async def _lease(database: Database, name: str) -> Lease:
    async with database.transaction() as connection:
        lease = await lease_store.acquire(connection, name, f"of {name}", "nowhere", 1, _LONG_REAL_S)
    if lease is None:
        raise ValueError(f"another process holds the lease {name}")
    return lease


def _rate(attempt: LiveAttempt) -> float:
    """Seconds of work per second."""
    return attempt.tuned.rate(attempt.specification, attempt.placements)


def _work_s(attempt: LiveAttempt) -> float:
    (job,) = attempt.specification.jobs
    if not isinstance(job.entry_point, Emulated):
        raise ValueError(f"{attempt.key} is not emulated")
    return job.entry_point.duration_s
