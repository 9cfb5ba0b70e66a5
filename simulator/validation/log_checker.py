"""Reads one record of the log after the other and asks every invariant's keeper about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from domain.events import EventKind
from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.fleet import Fleet
from domain.sensitivity import SensitivityProfile
from domain.table import Table
from domain.tenant import LOWEST_PRIORITY, Tenant
from simulator.validation.eviction_bounds import EvictionBounds
from simulator.validation.evictions import Evictions, uses_cells_of_newcomer
from simulator.validation.gangs import Gangs, read_jobs
from simulator.validation.lives import AttemptLife, Lives, Standing, WorkloadLife
from simulator.validation.lost_clusters import LostClusters
from simulator.validation.machines import Machines
from simulator.validation.needless_victims import NeedlessVictims
from simulator.validation.progress import ProgressCheck
from simulator.validation.quotas import Quotas
from simulator.validation.record_fields import (
    BadField,
    Record,
    flag_field,
    number_field,
    optional_number,
    optional_text,
    records_field,
    text_field,
    texts_field,
    whole_field,
)
from simulator.validation.regions import Regions
from simulator.validation.report import SHOWN_VIOLATIONS, Findings, Invariant, ValidationReport
from simulator.validation.reservations import Reservations
from simulator.validation.sharing_safety import SharingSafety, reason_of_wait
from simulator.validation.tuned_speeds import TunedSpeeds
from simulator.validation.user_requests import UserRequests

_CHANGES = frozenset({EventKind.RESIZED.value, EventKind.TUNED.value})


class LogChecker:
    """Fed with the records of a log in its order, then asked for the report."""

    def __init__(
        self,
        fleet: Fleet,
        tenants: Sequence[Tenant],
        tables: Iterable[Table] = (),
        greatest_shown: int = SHOWN_VIOLATIONS,
        rule: EvictionRule = DEFAULT_RULE,
        profiles: Mapping[str, SensitivityProfile] = MappingProxyType({}),
    ) -> None:
        self._findings = Findings(greatest_shown)
        self._machines = Machines(fleet, self._findings)
        self._gangs = Gangs(self._findings)
        self._regions = Regions(fleet, tables, self._findings)
        self._quotas = Quotas(tenants, self._findings)
        self._lives = Lives(self._findings)
        self._evictions = Evictions(self._lives, self._machines, self._findings)
        self._bounds = EvictionBounds(rule, self._findings)
        self._needless = NeedlessVictims(self._findings, fleet)
        self._progress = ProgressCheck(self._findings)
        self._tuned_speeds = TunedSpeeds(profiles, self._findings)
        self._sharing = SharingSafety(fleet, self._machines, self._findings)
        self._lost_clusters = LostClusters(fleet, self._machines, self._findings)
        self._events, self._kinds = 0, Counter[str]()
        self._handlers: MappingProxyType[str, Callable[[Record, float], None]] = MappingProxyType(
            {
                EventKind.SUBMITTED.value: self._submitted,
                EventKind.RANKED.value: self._ranked,
                EventKind.PROMOTED.value: self._promoted,
                EventKind.RECLASSIFIED.value: self._reclassified,
                EventKind.WAITING.value: self._waiting,
                EventKind.AWAITING_DATA.value: self._awaiting_data,
                EventKind.DISPATCHED.value: self._dispatched,
                EventKind.STARTED.value: self._started,
                EventKind.CHECKPOINTED.value: self._checkpointed,
                EventKind.RESIZED.value: self._resized,
                EventKind.TUNED.value: self._tuned,
                EventKind.DOWNGRADED.value: self._cells_changed,
                EventKind.RESTORED.value: self._cells_changed,
                EventKind.CHANGE_REFUSED.value: self._change_refused,
                EventKind.EVICTING.value: self._evicting,
                EventKind.EVICTED.value: self._evicted,
                EventKind.COMPLETED.value: self._completed,
                EventKind.FAILED.value: self._failed,
                EventKind.CANCELLED.value: self._cancelled,
                EventKind.MACHINE_DOWN.value: self._machine_down,
                EventKind.MACHINE_UP.value: self._machine_up,
                EventKind.MACHINE_DRAINING.value: self._machine_draining,
                EventKind.MACHINE_MOVED.value: self._machine_moved,
                **self._lost_clusters.handlers,
                **Reservations(fleet, self._lives, self._findings).handlers,
                **UserRequests(self._lives, self._quotas, self._findings).handlers,
                EventKind.LOANED.value: self._loaned,
                EventKind.RECLAIMED.value: self._reclaimed,
                EventKind.LOAN_SHORT.value: self._loan_short,
                EventKind.TABLE_MOVED.value: self._table_moved,
                EventKind.RUN_ENDED.value: self._run_ended,
                EventKind.MECHANISM_FAILED.value: self._mechanism_failed,
                EventKind.INVARIANT_BROKEN.value: self._invariant_broken,
            }
        )

    def feed(self, line: int, record: Record) -> None:
        """Checks one record; `line` is its place in the log, from 1."""
        findings = self._findings
        findings.line = line
        self._events += 1
        try:
            handler = self._handler_of(record)
            findings.workload = optional_text(record, "workload")
            handler(record, number_field(record, "t"))
        except BadField as error:
            findings.add(Invariant.LOG, str(error))
        findings.workload = None

    def _handler_of(self, record: Record) -> Callable[[Record, float], None]:
        kind = text_field(record, "event")
        handler = self._handlers.get(kind)
        if handler is None:
            raise BadField(f"has event {kind}, which is no kind of event")
        self._kinds[kind] += 1
        return handler

    def feed_bad_line(self, line: int, sentence: str) -> None:
        """Takes note of a line that is no record at all."""
        self._findings.line = line
        self._events += 1
        self._findings.add(Invariant.LOG, sentence)

    def report(self, *, complete: bool) -> ValidationReport:
        """What was found. In a complete log every workload has ended, and there is at least one."""
        self._findings.line = 0
        self._needless.report()
        if complete:
            if self._lives.submitted == 0:
                self._findings.add(Invariant.LOG, f"has {self._events} events and no workload: it shows nothing")
            self._evictions.check_promises()
            self._lives.check_all_ended()
        counts = self._findings.counts
        return ValidationReport(
            events=self._events,
            events_by_kind={kind: self._kinds[kind] for kind in sorted(self._kinds)},
            workloads=self._lives.submitted,
            attempts=self._lives.attempts,
            complete=complete,
            checks={
                Invariant.LOG: self._events,
                Invariant.I1: self._machines.checks,
                Invariant.I2: self._gangs.checks,
                Invariant.I3: self._regions.checks,
                Invariant.I4: self._quotas.checks,
                Invariant.I5: self._evictions.checks,
                Invariant.I6: self._sharing.checks,
                Invariant.I7: self._tuned_speeds.checks,
                Invariant.I8: self._lives.checks,
                Invariant.I9: self._progress.checks,
                Invariant.I13: self._lost_clusters.checks,
                Invariant.I15: self._bounds.checks + self._needless.checks,
            },
            violations=sum(counts.values()),
            violations_by_invariant=counts,
            shown=self._findings.shown,
        )

    # In the queue.

    def _submitted(self, record: Record, _t_s: float) -> None:
        name = text_field(record, "workload")
        text_field(record, "name")
        tenant = text_field(record, "tenant")
        jobs = read_jobs(record)
        tables = [_input(entry) for entry in records_field(record, "tables")]
        regions = texts_field(record, "regions")
        emulated, work_s = flag_field(record, "emulated"), optional_number(record, "work_s")
        if emulated and work_s is None:
            raise BadField("is emulated, but has no work_s")
        before = whole_field(record, "attempts") if "attempts" in record else 0
        kept = optional_number(record, "checkpoint_progress") or 0.0
        asked = whole_field(record, "asked_priority") if "asked_priority" in record else None
        if self._lives.may_submit(name):
            charge = self._quotas.charge_of(tenant, jobs.values(), asked)
            life = WorkloadLife(name, tenant, jobs, tables, regions, charge, asked)
            life.emulated, life.work_s = emulated, work_s
            life.model = optional_text(record, "model") or ""
            life.attempts, life.kept = before, kept
            self._lives.begin(life)

    def _ranked(self, record: Record, _t_s: float) -> None:
        priority, _ = _standing(record)
        within_quota = flag_field(record, "within_quota")
        credit = record.get("credit")
        if isinstance(credit, bool) or not isinstance(credit, int | float):
            raise BadField("has no credit, which must be a number")
        life = self._lives.of_record(record)
        if life is not None:
            self._quotas.check_standing(life.tenant, priority, life.asked_priority, within_quota=within_quota)
            self._sharing.ranked(life.name, within_quota=within_quota)

    def _promoted(self, record: Record, _t_s: float) -> None:
        _standing(record)
        for name in ("waited_s", "attained_s", "attained_gpu_s"):
            if number_field(record, name) < 0:
                raise BadField(f"has {name} {record[name]}, which must not be negative")
        self._lives.of_record(record)

    def _waiting(self, record: Record, _t_s: float) -> None:
        text_field(record, "reason")
        life = self._lives.of_record(record)
        if life is not None:
            self._sharing.waiting(life, reason_of_wait(record))

    def _awaiting_data(self, record: Record, _t_s: float) -> None:
        text_field(record, "reason")
        texts_field(record, "tables")
        self._lives.of_record(record)

    def _table_moved(self, record: Record, _t_s: float) -> None:
        whole_field(record, "bytes", 0)
        flag_field(record, "on_demand")
        kind, target, home = text_field(record, "kind"), text_field(record, "region"), text_field(record, "home")
        if kind not in ("home", "copy"):
            raise BadField(f"has kind {kind}, which must be home or copy")
        newest = whole_field(record, "newest_partitions", 1) if "newest_partitions" in record else None
        table, source = text_field(record, "table"), text_field(record, "source")
        self._regions.table_moved(table, source, target, home, texts_field(record, "replicas"), newest)

    # Attempts.

    def _dispatched(self, record: Record, t_s: float) -> None:
        region = text_field(record, "region")
        number = whole_field(record, "attempt", 1)
        standing, within_quota = _standing(record), flag_field(record, "within_quota")
        guaranteed = flag_field(record, "guaranteed") if "guaranteed" in record else within_quota
        placement, evicts = records_field(record, "placement"), records_field(record, "evicts")
        known = self._lives.open_life(text_field(record, "workload"))
        migrates = known is not None and known.goes_on_as is not None
        life = self._lives.of_record(record)
        if life is None:
            return
        self._lives.check_dispatch(life, number)
        if life.attempt is not None:
            self._release(life, life.attempt)
        self._regions.check(region, life.tables, life.regions)
        planned = self._machines.read_placement(placement, region)
        life.jobs = read_jobs(record) if "jobs" in record else life.jobs_submitted
        self._gangs.check(life.jobs, planned, as_asked=True)
        attempt = AttemptLife(life.name, number, region, self._findings.line, t_s, placement, planned, life.kept)
        self._lives.attempts += 1
        life.attempts, life.attempt = number, attempt
        attempt.guaranteed = guaranteed
        attempt.virtual_cluster = optional_text(record, "virtual_cluster")
        uses_cells = guaranteed and attempt.virtual_cluster is not None
        victims = self._evictions.dispatched(life.name, standing, region, evicts, uses_cells=uses_cells)
        self._sharing.dispatched(life, attempt)
        self._lost_clusters.dispatched(attempt.name, planned)
        self._bounds.dispatched(attempt, victims)
        self._needless.dispatched(life.name, attempt, victims, migrates=migrates)
        self._classify(life, attempt, standing, within_quota=within_quota)

    def _started(self, record: Record, t_s: float) -> None:
        standing, within_quota = _standing(record), flag_field(record, "within_quota")
        placement = records_field(record, "placement")
        life, attempt = self._acting_attempt(record, t_s)
        if life is None or attempt is None:
            return
        if flag_field(record, "emulated") != life.emulated:
            raise BadField(f"says emulated {record['emulated']}, but was submitted as {life.emulated}")
        text_field(record, "region")
        if attempt.started:
            self._lives.report_started_before(attempt)
            return
        if placement == attempt.placement:
            claims = attempt.planned
        else:
            claims = self._machines.read_placement(placement, attempt.region)
            self._gangs.check(life.jobs, claims, as_asked=True)
            self._needless.changed(attempt, attempt.planned, claims)
        attempt.started = True
        attempt.started_s = t_s
        attempt.claims = claims
        attempt.placement = ()
        self._machines.hold(attempt.name, claims)
        self._classify(life, attempt, standing, within_quota=within_quota)
        self._progress.started(life, attempt, record, t_s)
        self._tuned_speeds.check(life, attempt, claims, record)

    def _reclassified(self, record: Record, _t_s: float) -> None:
        standing, within_quota = _standing(record), flag_field(record, "within_quota")
        life, attempt = self._attempt(record)
        if life is not None and attempt is not None:
            self._classify(life, attempt, standing, within_quota=within_quota)

    def _checkpointed(self, record: Record, t_s: float) -> None:
        life, attempt = self._running_attempt(record, t_s)
        if life is not None and attempt is not None:
            self._progress.checkpointed(life, attempt, record, t_s)

    def _resized(self, record: Record, t_s: float) -> None:
        self._change_placement(record, t_s)

    def _tuned(self, record: Record, t_s: float) -> None:
        self._change_placement(record, t_s)

    def _change_refused(self, record: Record, t_s: float) -> None:
        """It holds what it held: nothing of the change was ever said to be carried out."""
        change = text_field(record, "change")
        if change not in _CHANGES:
            raise BadField(f"has change {change}, which is none of {', '.join(sorted(_CHANGES))}")
        text_field(record, "reason")
        self._running_attempt(record, t_s)

    def _mechanism_failed(self, record: Record, t_s: float) -> None:
        """No invariant is about it: a place is refused, and that is all."""
        for name in ("mechanism", "asked", "error"):
            text_field(record, name)

    def _change_placement(self, record: Record, t_s: float) -> None:
        placement = records_field(record, "placement")
        life, attempt = self._running_attempt(record, t_s)
        if life is None or attempt is None:
            return
        claims = self._machines.read_placement(placement, attempt.region)
        self._gangs.check(life.jobs, claims, as_asked=False)
        before = frozenset(claim.machine.name for claim in attempt.claims)
        lost = frozenset(claim.machine.name for claim in attempt.claims if attempt.name in claim.machine.lost)
        self._machines.release(attempt.name, attempt.claims)
        self._machines.hold(attempt.name, claims, before)
        self._machines.still_lost(attempt.name, claims, lost)
        self._needless.changed(attempt, attempt.claims, claims)
        attempt.claims = claims
        self._progress.speed_changed(attempt, record, t_s)
        self._tuned_speeds.check(life, attempt, claims, record)

    def _cells_changed(self, record: Record, t_s: float) -> None:
        del t_s
        texts_field(record, "jobs")
        _, attempt = self._attempt(record)
        if attempt is not None:
            attempt.without_cells = record["event"] == EventKind.DOWNGRADED.value

    def _evicting(self, record: Record, t_s: float) -> None:
        life, attempt = self._attempt(record)
        if life is not None and attempt is not None:
            cause = self._evictions.evicted(life, attempt, record)
            self._bounds.asked_to_leave(life, attempt, cause, t_s, own_cells=uses_cells_of_newcomer(record))

    def _evicted(self, record: Record, t_s: float) -> None:
        life, attempt = self._acting_attempt(record, t_s)
        if life is None or attempt is None:
            return
        cause = self._evictions.evicted(life, attempt, record)
        self._bounds.asked_to_leave(life, attempt, cause, t_s, own_cells=uses_cells_of_newcomer(record))
        self._progress.ended(life, attempt, record, t_s)
        life.cancelling = cause == "cancelled"
        life.goes_on_as = self._evictions.successor(attempt, record, cause)
        self._release(life, attempt)

    # The end.

    def _completed(self, record: Record, t_s: float) -> None:
        life, attempt = self._running_attempt(record, t_s)
        if life is not None and attempt is not None:
            self._progress.completed(life, attempt, record, t_s)
            self._release(life, attempt)
            self._end(life, "completed")

    def _failed(self, record: Record, t_s: float) -> None:
        text_field(record, "reason")
        final = flag_field(record, "final")
        if final and record.get("attempt") is None:
            # Given up in the queue: there is no attempt that could have failed.
            life = self._idle_life(record)
        else:
            life, attempt = self._acting_attempt(record, t_s)
            if life is not None and attempt is not None:
                self._progress.ended(life, attempt, record, t_s)
                self._release(life, attempt)
            else:
                life = None
        if life is not None and final:
            self._end(life, "failed")

    def _cancelled(self, record: Record, t_s: float) -> None:
        if record.get("attempt") is None:
            life = self._idle_life(record)
        else:
            life, attempt = self._acting_attempt(record, t_s)
            if life is not None and attempt is not None:
                self._progress.stopped_for_good(life, attempt, record, t_s)
                self._release(life, attempt)
            else:
                life = None
        if life is not None:
            self._end(life, "was cancelled")

    def _end(self, life: WorkloadLife, how: str) -> None:
        self._lives.end(life, how)
        self._bounds.ended(life.name)

    # Machines.

    def _machine_down(self, record: Record, _t_s: float) -> None:
        self._machines.change_state(record, "machine_down")

    def _machine_up(self, record: Record, _t_s: float) -> None:
        self._machines.change_state(record, "machine_up")

    def _machine_draining(self, record: Record, _t_s: float) -> None:
        self._machines.change_state(record, "machine_draining")

    def _machine_moved(self, record: Record, _t_s: float) -> None:
        self._machines.change_cluster(record)

    def _loaned(self, record: Record, _t_s: float) -> None:
        self._machines.change_state(record, "loaned")

    def _loan_short(self, record: Record, _t_s: float) -> None:
        text_field(record, "region")
        text_field(record, "cluster")
        whole_field(record, "machines", 1)

    def _reclaimed(self, record: Record, _t_s: float) -> None:
        self._machines.change_state(record, "reclaimed")

    def _invariant_broken(self, record: Record, _t_s: float) -> None:
        violated = f"says that an invariant was broken: {text_field(record, 'invariant')}"
        self._findings.add(Invariant.LOG, violated)

    def _run_ended(self, record: Record, _t_s: float) -> None:
        flag_field(record, "stalled")
        whole_field(record, "not_submitted")

    # What several kinds have in common.

    def _attempt(self, record: Record) -> tuple[WorkloadLife | None, AttemptLife | None]:
        """Workload and live attempt of something that is decided about the attempt."""
        life = self._lives.of_record(record)
        return life, self._lives.attempt_of_record(life, record) if life is not None else None

    def _acting_attempt(self, record: Record, t_s: float) -> tuple[WorkloadLife | None, AttemptLife | None]:
        """Workload and live attempt of something that the attempt does itself."""
        life, attempt = self._attempt(record)
        if attempt is not None:
            self._lives.check_time(attempt, t_s)
        return life, attempt

    def _running_attempt(self, record: Record, t_s: float) -> tuple[WorkloadLife | None, AttemptLife | None]:
        """The attempt when it has started; reports it when it has not."""
        life, attempt = self._acting_attempt(record, t_s)
        if attempt is not None and not attempt.started:
            self._lives.report_not_started(attempt, record)
            return life, None
        return life, attempt

    def _idle_life(self, record: Record) -> WorkloadLife | None:
        """The workload when no attempt of it is live; reports one that is, and lets go of what it holds."""
        life = self._lives.of_record(record)
        if life is not None and life.attempt is not None:
            self._lives.report_still_live(life.attempt, record)
            self._release(life, life.attempt)
        return life

    def _classify(self, life: WorkloadLife, attempt: AttemptLife, standing: Standing, *, within_quota: bool) -> None:
        """The attempt stands there from now on, and is charged to the quota or not."""
        if within_quota and not attempt.within_quota:
            self._quotas.use(life.tenant, life.charge, life.asked_priority)
        elif attempt.within_quota and not within_quota:
            self._quotas.give_back(life.tenant, life.charge)
        if (standing, within_quota) != (attempt.standing, attempt.within_quota):
            self._quotas.check_standing(life.tenant, standing[0], life.asked_priority, within_quota=within_quota)
        attempt.standing, attempt.within_quota = standing, within_quota

    def _release(self, life: WorkloadLife, attempt: AttemptLife) -> None:
        """The attempt has ended: its machines and its quota are free again."""
        self._machines.release(attempt.name, attempt.claims)
        self._needless.ended(attempt)
        self._sharing.ended(life, attempt)
        if attempt.within_quota:
            self._quotas.give_back(life.tenant, life.charge)
        life.attempt = None


def _input(entry: Record) -> tuple[str, bool, int | None]:
    newest = whole_field(entry, "newest_partitions", 1) if "newest_partitions" in entry else None
    return text_field(entry, "table"), flag_field(entry, "fresh"), newest


def _standing(record: Record) -> Standing:
    priority, level = whole_field(record, "priority"), whole_field(record, "level")
    if priority > LOWEST_PRIORITY:
        raise BadField(f"has priority {priority}, which must be at most {LOWEST_PRIORITY}")
    return priority, level
