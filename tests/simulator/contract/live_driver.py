"""The live service's decisions on a recorded course: rows, as they would stand in its database, go into its own code.

`ScanSnapshot` and `make_memory` are where the service's database ends. From there on everything is the service's: the
view, the scan pass, a memory for each region, and rounds over windows with hints, which are answered, closed and confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster_manager.attempt_run.events import Eviction
from data_placement.catalog import Catalog
from domain.events import Event, EventKind
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import MachineState
from domain.identifiers import AttemptNumber, MachineId, RegionId, TenantId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import QueuePosition, Standing
from domain.snapshot import Snapshot
from domain.tenant import quota_charges
from domain.workload import Workload
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.usage_window import UseStretches, WindowedUse, window_averages
from global_scheduler.view_builder import PendingRows, RunningRows
from regional_scheduler.auction import RoundOutcome, close_round
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.dispatching import Dispatch
from regional_scheduler.round_opening import open_round
from regional_scheduler.rounds import AuctionSettings, Lot
from services.database.attempt_store import StoredAttempt
from services.database.requeue_store import requeued_entry
from services.database.revision_store import Revisions
from services.global_scheduler.scan_decision import ScanDecision, ScanSnapshot, decide
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.workloads import specification_to_proto
from simulator.baselines.mast import MAST
from tests.regional_scheduler.auction_worlds import lots_won
from tests.simulator.contract.decisions import Decisions, DispatchDecision, Reclassified, ordered
from tests.simulator.contract.recorded_run import (
    MACHINE_STATES,
    RecordedRun,
    key_of,
    placements_of,
    region_of,
    tenant_of,
    victims_of,
)


@dataclass(slots=True)
class _QueueEntry:
    """A row of the queue."""

    workload: Workload
    stored: QueuePosition | None = None


@dataclass(slots=True)
class _UseRow:
    """What an attempt held, since when, until when."""

    tenant: TenantId
    gpus: float
    cpus: float
    since_s: float
    until_s: float | None = None


@dataclass(slots=True)
class LiveDriver:
    """The service's way to decide; auctions with rounds of at most `window` lots."""

    run: RecordedRun
    window: int
    settings: ScanSettings = field(default_factory=ScanSettings)
    rule: EvictionRule = DEFAULT_RULE
    rounds: int = 0
    _queue: dict[WorkloadId, _QueueEntry] = field(default_factory=dict)
    _live: dict[AttemptKey, tuple[RegionId, StoredAttempt]] = field(default_factory=dict)
    _use: dict[AttemptKey, _UseRow] = field(default_factory=dict)
    _machines: dict[MachineId, MachineState] = field(default_factory=dict)
    _specifications: dict[WorkloadId, Workload] = field(default_factory=dict)
    _attempts: dict[WorkloadId, int] = field(default_factory=dict)

    @staticmethod
    def of_snapshot(snapshot: Snapshot, window: int) -> LiveDriver:
        """With the rows that the service has at that moment."""
        driver = LiveDriver(
            RecordedRun(snapshot.fleet, snapshot.tables, snapshot.tenants, (), ()), window, rule=MAST.eviction
        )
        tenants = {tenant.tenant: tenant for tenant in snapshot.tenants}
        driver._machines = dict(snapshot.machine_states)
        for entry in snapshot.queue:
            name = entry.workload.workload
            driver._specifications[name] = entry.workload
            driver._attempts[name] = entry.so_far.attempts
            driver._queue[name] = _QueueEntry(entry.workload, entry.position)
        for attempt in snapshot.running:
            specification = attempt.workload.specification
            driver._specifications[attempt.key.workload] = attempt.workload
            driver._attempts[attempt.key.workload] = attempt.key.attempt
            leaving = attempt.leaving
            driver._live[attempt.key] = (
                attempt.region,
                StoredAttempt(
                    key=attempt.key,
                    tenant=specification.tenant,
                    state=attempt.state,
                    standing=attempt.standing,
                    within_quota=attempt.within_quota,
                    guaranteed=attempt.guaranteed,
                    submitted_s=attempt.workload.submitted_s,
                    dispatched_s=attempt.dispatched_s,
                    started_s=attempt.started_s,
                    eviction=None if leaving is None else Eviction(leaving.cause, leaving.by, leaving.by_standing),
                    progress_at_start=attempt.progress_at_start,
                    progress=attempt.progress,
                    checkpoint_progress=attempt.checkpoint_progress,
                    checkpoint_s=None,
                    failures=attempt.so_far.failures,
                    charges=quota_charges(specification, tenants[specification.tenant]),
                    placements=attempt.placements,
                    specification=specification_to_proto(specification).SerializeToString(),
                    cells=attempt.cells,
                ),
            )
        for number, use in enumerate(snapshot.use):
            length_s = use.end_s - use.start_s
            key = AttemptKey(WorkloadId(f"use-{number}"), AttemptNumber(1))
            row = _UseRow(use.tenant, use.gpu_seconds / length_s, use.cpu_seconds / length_s, use.start_s, use.end_s)
            driver._use[key] = row
        return driver

    # What happens.

    def take(self, event: Event) -> None:
        """The rows, as the service has them after that."""
        kind = event.event
        if kind in MACHINE_STATES:
            self._machines[MachineId(str(event.details["machine"]))] = MACHINE_STATES[kind]
        elif kind is EventKind.SUBMITTED:
            (workload,) = (one for one in self.run.workloads if one.workload == event.workload)
            self._specifications[workload.workload] = workload
            self._queue[workload.workload] = _QueueEntry(workload)
        elif kind is EventKind.DISPATCHED:
            self._dispatch(event)
        elif kind is EventKind.STARTED:
            self._change(key_of(event), state=State.RUNNING, started_s=event.t)
        elif kind is EventKind.EVICTING:
            self._change(key_of(event), state=State.PREEMPTING)
        elif kind is EventKind.RECLASSIFIED:
            standing = Standing(event.priority or 0, event.level or 0)
            self._change(key_of(event), standing=standing, within_quota=bool(event.details["within_quota"]))
        elif kind in (EventKind.EVICTED, EventKind.COMPLETED):
            key = key_of(event)
            del self._live[key]
            self._use[key].until_s = event.t
            if kind is EventKind.EVICTED:
                self._queue[key.workload] = _QueueEntry(self._specifications[key.workload])

    def _dispatch(self, event: Event) -> None:
        key, placements = key_of(event), placements_of(event)
        workload = self._queue.pop(key.workload).workload
        tenant = next(one for one in self.run.tenants if one.tenant == tenant_of(event))
        self._attempts[key.workload] = key.attempt
        attempt = StoredAttempt(
            key=key,
            tenant=tenant.tenant,
            state=State.DISPATCHED,
            standing=Standing(event.priority or 0, event.level or 0),
            within_quota=bool(event.details["within_quota"]),
            guaranteed=bool(event.details.get("guaranteed", event.details["within_quota"])),
            submitted_s=workload.submitted_s,
            dispatched_s=event.t,
            started_s=None,
            eviction=None,
            progress_at_start=0.0,
            progress=0.0,
            checkpoint_progress=0.0,
            checkpoint_s=None,
            failures=0,
            charges=quota_charges(workload.specification, tenant),
            placements=placements,
            specification=specification_to_proto(workload.specification).SerializeToString(),
        )
        self._live[key] = region_of(event), attempt
        gpus = sum(len(placement.gpu_indices) for placement in placements)
        cpus = sum(placement.millicpus for placement in placements) / 1000
        self._use[key] = _UseRow(tenant.tenant, gpus, cpus, event.t)
        for victim in victims_of(event):
            self._change(victim, state=State.PREEMPTING)

    def _change(
        self,
        key: AttemptKey,
        *,
        state: State | None = None,
        started_s: float | None = None,
        standing: Standing | None = None,
        within_quota: bool | None = None,
    ) -> None:
        region, attempt = self._live[key]
        leaving = attempt.state is State.PREEMPTING
        self._live[key] = (
            region,
            replace(
                attempt,
                state=attempt.state if state is None or leaving else state,
                started_s=attempt.started_s if started_s is None else started_s,
                standing=attempt.standing if standing is None else standing,
                within_quota=attempt.within_quota if within_quota is None else within_quota,
            ),
        )

    # What is decided.

    def decide(self, now: float) -> Decisions:
        """A scan pass and its auctions. Ranks are kept; what is dispatched is not: the recorded course goes on."""
        decision = decide(self._snapshot(now), self.settings)
        plan = decision.plan
        reclassified = tuple(
            Reclassified(change.key, change.within_quota, change.standing) for change in plan.reclassifications
        )
        queue = self._ranked(decision)
        for position in queue:
            self._queue[position.workload].stored = position
        memories = self._memories({change.key: change for change in reclassified})
        dispatched, waiting = self._auction(queue, memories, now)
        return Decisions(reclassified, queue, dispatched, waiting)

    def _ranked(self, decision: ScanDecision) -> tuple[QueuePosition, ...]:
        plan, pending = decision.plan, decision.view.pending
        return tuple(
            QueuePosition(
                pending.workloads[entry],
                Standing(int(plan.priority[entry]), int(plan.level[entry])),
                float(plan.credit[entry]),
                float(pending.submitted_s[entry]),
                bool(plan.within_quota[entry]),
            )
            for entry in plan.order.tolist()
        )

    def _snapshot(self, now: float) -> ScanSnapshot:
        return ScanSnapshot(
            now=now,
            tenants=self.run.tenants,
            tenants_revision=1,
            use=self._windowed_use(now),
            pending=self._pending_rows(),
            running=self._running_rows(),
            next_due_s=None,
            last_pass=None,
        )

    def _pending_rows(self) -> PendingRows:
        entries = list(self._queue.values())
        demands = [requeued_entry(entry.workload.specification) for entry in entries]
        stored = [entry.stored for entry in entries]
        return PendingRows(
            workloads=[entry.workload.workload for entry in entries],
            tenants=[entry.workload.specification.tenant for entry in entries],
            submitted_s=[entry.workload.submitted_s for entry in entries],
            gpu_model=[demand.gpu_model for demand in demands],
            gpus=[demand.gpus for demand in demands],
            cpus=[demand.cpus for demand in demands],
            more_gpus=[demand.more_gpus or None for demand in demands],
            stored_priority=[None if known is None else known.standing.priority for known in stored],
            stored_level=[0 for _ in entries],
            stored_credit=[0.0 if known is None else known.credit for known in stored],
            stored_within_quota=[known is not None and known.within_quota for known in stored],
            queued_since_s=[entry.workload.submitted_s for entry in entries],
            attained_gpu_s=[0.0 for _ in entries],
            attained_s=[0.0 for _ in entries],
            first_started_s=[math.inf for _ in entries],
        )

    def _running_rows(self) -> RunningRows:
        live = [attempt for _, attempt in self._live.values()]
        return RunningRows(
            workloads=[attempt.key.workload for attempt in live],
            attempts=[int(attempt.key.attempt) for attempt in live],
            tenants=[attempt.tenant for attempt in live],
            started_s=[attempt.dispatched_s if attempt.started_s is None else attempt.started_s for attempt in live],
            priority=[attempt.standing.priority for attempt in live],
            level=[attempt.standing.level for attempt in live],
            within_quota=[attempt.within_quota for attempt in live],
            leaving=[attempt.state is State.PREEMPTING for attempt in live],
            charges=[attempt.charges for attempt in live],
            gpus=[sum(len(placement.gpu_indices) for placement in attempt.placements) for attempt in live],
            submitted_s=[attempt.submitted_s for attempt in live],
            working_since_s=[math.nan if attempt.started_s is None else attempt.started_s for attempt in live],
            attained_gpu_s=[0.0 for _ in live],
        )

    def _windowed_use(self, now: float) -> Mapping[TenantId, WindowedUse]:
        rows = [row for row in self._use.values() if row.since_s < now]
        ends_s = [now if row.until_s is None else row.until_s for row in rows]
        held_s = [end_s - row.since_s for row, end_s in zip(rows, ends_s, strict=True)]
        stretches = UseStretches(
            tenants=[row.tenant for row in rows],
            start_s=[row.since_s for row in rows],
            end_s=ends_s,
            gpu_seconds=[row.gpus * length_s for row, length_s in zip(rows, held_s, strict=True)],
            cpu_seconds=[row.cpus * length_s for row, length_s in zip(rows, held_s, strict=True)],
        )
        return window_averages(stretches, now, self.settings.credit.usage_window_s)

    def _memories(self, changes: Mapping[AttemptKey, Reclassified]) -> Mapping[RegionId, RegionMemory]:
        memories = {}
        for region in self.run.fleet.regions:
            stored = [attempt for where, attempt in self._live.values() if where == region.region]
            memory = make_memory(
                Revisions(1, 1, 1),
                self.run.fleet,
                self._machines,
                self.run.tenants,
                Catalog(self.run.tables),
                stored,
                region.region,
                self.rule,
            )
            if memory is None:
                raise ValueError(f"the fleet has no region {region.region}")
            for key, change in changes.items():
                if memory.inventory.holding(key) is not None:
                    memory.inventory.set_standing(key, change.standing)
            memories[region.region] = memory
        return memories

    def _auction(
        self, queue: Sequence[QueuePosition], memories: Mapping[RegionId, RegionMemory], now: float
    ) -> tuple[tuple[DispatchDecision, ...], tuple[WorkloadId, ...]]:
        lots = [
            Lot(
                self._specifications[position.workload],
                position,
                AttemptNumber(self._attempts.get(position.workload, 0) + 1),
            )
            for position in queue
        ]
        bidders = {region: memory.bidder for region, memory in memories.items()}
        dispatched = auction_in_rounds(lots, bidders, self.window, now)
        self.rounds += dispatched.rounds
        won = {one.workload for one in dispatched.dispatched}
        return dispatched.dispatched, tuple(lot.workload.workload for lot in lots if lot.workload.workload not in won)


@dataclass(frozen=True, slots=True)
class RoundsHeld:
    """What came of the auctions of a scan pass, and in how many rounds."""

    dispatched: tuple[DispatchDecision, ...]
    rounds: int


def auction_in_rounds(
    lots: Sequence[Lot], bidders: Mapping[RegionId, RegionBidder], window: int, now: float
) -> RoundsHeld:
    """Rounds as the auctioneers hold them, until the queue is through: hints and the size of the window carry over."""
    configured = AuctionSettings(window)
    decided, rounds = 0, 0
    outcome: RoundOutcome | None = None
    dispatched: list[DispatchDecision] = []
    while lots and (outcome is None or not outcome.exhausted):
        rounds += 1
        reach = configured.window if outcome is None else outcome.next_window(configured)
        opened = open_round(
            number=rounds,
            scan_pass=1,
            now=now,
            settings=AuctionSettings(reach),
            participants=tuple(bidders),
            upcoming=lots[decided : decided + reach + 1],
            hints={} if outcome is None else outcome.hints(),
            runs_alone=outcome is None or outcome.runs_alone,
        )
        behind = () if opened.reaches_end else lots[decided + len(opened.lots) :][: configured.window]
        closed = close_round(opened, [bidder.answer(opened, now) for bidder in bidders.values()], now, behind)
        if not isinstance(closed, RoundOutcome) or not closed.verdicts:
            raise ValueError(f"round {rounds} has decided nothing")
        outcome = closed
        decided += len(outcome.verdicts)
        for region, bidder in bidders.items():
            for confirmation in bidder.confirm(lots_won(outcome, region), now):
                if not isinstance(confirmation, Dispatch):
                    raise ValueError(f"what was won has no room: {confirmation}")
                name = confirmation.lot.workload.workload
                plan = confirmation.plan
                dispatched.append(DispatchDecision(name, region, ordered(plan.placements), plan.evictions))
    place = {lot.workload.workload: number for number, lot in enumerate(lots)}
    dispatched.sort(key=lambda one: place[one.workload])
    return RoundsHeld(tuple(dispatched), rounds)
