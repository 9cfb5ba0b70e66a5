"""I8: every acknowledged workload ends exactly once, no two attempts of it overlap, a stale attempt changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.validation.gangs import JobDemand
from simulator.validation.machines import Claim
from simulator.validation.quotas import Charge
from simulator.validation.record_fields import BadField, Record, text_field, whole_field
from simulator.validation.report import Findings, Invariant

CLOCK_SLACK_S = 1.0
"""How far the clocks of two machines may differ: what an attempt reports may go back in time by so much."""

Standing = tuple[int, int]
"""(priority, level): smaller is better."""


class AttemptLife:
    """A live attempt: from `dispatched` to its end."""

    __slots__ = (
        "cells_of",
        "checkpoint",
        "claims",
        "dispatched_line",
        "dispatched_s",
        "guaranteed",
        "last_t_s",
        "migrates_since_line",
        "name",
        "number",
        "placement",
        "planned",
        "region",
        "restored",
        "room_for",
        "speed",
        "speed_since_s",
        "standing",
        "started",
        "started_s",
        "virtual_cluster",
        "within_quota",
        "without_cells",
        "work_possible",
    )

    def __init__(
        self,
        workload: str,
        number: int,
        region: str,
        line: int,
        t_s: float,
        placement: Sequence[Record],
        planned: list[Claim],
        kept: float,
    ) -> None:
        self.name = f"attempt {number} of {workload}"
        self.number = number
        self.region = region
        self.standing: Standing | None = None
        self.within_quota = False
        self.guaranteed = False
        """Whether it was within quota when it was dispatched."""
        self.dispatched_line = line
        self.dispatched_s = t_s
        self.last_t_s = t_s
        """When it was dispatched, or last did something itself."""
        self.placement = placement
        """As dispatched, to be compared with what is started."""
        self.planned = planned
        self.claims: list[Claim] = []
        """What it holds: nothing before it has started."""
        self.started = False
        self.started_s: float | None = None
        self.migrates_since_line: int | None = None
        """Where the log says that it is to go on elsewhere."""
        self.room_for: dict[str, Standing] = {}
        """Dispatched workloads that it is to make room for, and their standing."""
        self.cells_of: dict[str, bool] = {}
        """Of these, whether the attempt is said to use their cells opportunistically."""
        self.virtual_cluster: str | None = None
        """Whose cells it was dispatched to."""
        self.without_cells = False
        """Whether any of its jobs has lost its cells for now."""
        self.restored = kept
        self.checkpoint = kept
        """Its newest: what would be kept if it ended now."""
        self.speed = 1.0
        self.speed_since_s = 0.0
        self.work_possible = 0.0
        """Emulated: the work that can have been done until `speed_since_s`."""

    @property
    def is_all_in_cells(self) -> bool:
        """Whether all that it holds are cells of its own virtual cluster, as far as the log tells: it has one job."""
        one_job = len({claim.job for claim in self.planned}) == 1
        return one_job and self.virtual_cluster is not None and not self.without_cells


class WorkloadLife:
    """A workload that has been submitted and has not ended."""

    __slots__ = (
        "asked_priority",
        "attempt",
        "attempts",
        "cancelling",
        "charge",
        "emulated",
        "goes_on_as",
        "held",
        "jobs",
        "jobs_submitted",
        "kept",
        "model",
        "name",
        "regions",
        "tables",
        "tenant",
        "work_s",
    )

    def __init__(
        self,
        name: str,
        tenant: str,
        jobs: Mapping[str, JobDemand],
        tables: Sequence[tuple[str, bool, int | None]],
        regions: Sequence[str],
        charge: Charge,
        asked_priority: int | None = None,
    ) -> None:
        self.name = name
        self.tenant = tenant
        self.jobs_submitted = jobs
        self.jobs = jobs
        """As its attempt runs: on loaned GPUs in more tasks than it was submitted in."""
        self.tables = tables
        self.regions = regions
        self.charge = charge
        self.asked_priority = asked_priority
        """None: that of its tenant."""
        """What it uses of its tenant's quota while an attempt of it is within quota."""
        self.emulated = False
        self.model = ""
        """What it says that it trains."""
        self.work_s: float | None = None
        self.attempts = 0
        self.attempt: AttemptLife | None = None
        """The live one."""
        self.kept = 0.0
        """Progress of the newest checkpoint of all attempts that have ended."""
        self.goes_on_as: int | None = None
        """It was evicted in order to go on elsewhere: its next event is the dispatch of this attempt."""
        self.cancelling = False
        """Evicted because it was cancelled: only `cancelled` may follow."""
        self.held = False
        """Its user holds it: it is not dispatched before it is released."""


class Lives:
    """All workloads of the log."""

    def __init__(self, findings: Findings) -> None:
        self.checks = 0
        self.submitted = 0
        self.attempts = 0
        self._findings = findings
        self._open: dict[str, WorkloadLife] = {}
        self._ended: dict[str, str] = {}

    def may_submit(self, name: str) -> bool:
        """Whether this is the workload's first submission; reports it when not."""
        self.checks += 1
        if name in self._open:
            self._add("is submitted again")
        elif name in self._ended:
            self._add(f"is submitted again after it {self._ended[name]}")
        else:
            return True
        return False

    def begin(self, life: WorkloadLife) -> None:
        """The workload is submitted."""
        self.submitted += 1
        self._open[life.name] = life

    def of_record(self, record: Record) -> WorkloadLife | None:
        """The workload that the record is about; reports what cannot happen to it and returns None."""
        name = text_field(record, "workload")
        life = self._open.get(name)
        if life is None:
            self.checks += 1
            if name in self._ended:
                self._add(f"has event {record.get('event')} after it {self._ended[name]}")
            else:
                self._add(f"has event {record.get('event')}, but was never submitted")
            return None
        tenant = record.get("tenant")
        if tenant is not None and tenant != life.tenant:
            raise BadField(f"has tenant {tenant}, but the workload was submitted by {life.tenant}")
        self.check_goes_on(life, record)
        return life

    def attempt_of_record(self, life: WorkloadLife, record: Record) -> AttemptLife | None:
        """The live attempt that the record is about; reports a stale one and returns None."""
        number = whole_field(record, "attempt", 1)
        self.checks += 1
        attempt = life.attempt
        if attempt is None or attempt.number != number:
            now = f"attempt {attempt.number} is" if attempt is not None else "no attempt is"
            self._add(f"has event {record.get('event')} of attempt {number}, but {now} live: a stale attempt")
            return None
        region = record.get("region")
        if region is not None and region != attempt.region:
            raise BadField(f"has region {region}, but the attempt was dispatched to {attempt.region}")
        return attempt

    def check_time(self, attempt: AttemptLife, t_s: float) -> None:
        """What an attempt does itself (not what is decided about it) comes in the order of time. Raises BadField."""
        earlier = attempt.last_t_s
        attempt.last_t_s = t_s
        if t_s < earlier - CLOCK_SLACK_S:
            raise BadField(f"has t {t_s:.6f}, but {attempt.name} was at {earlier:.6f} before: time goes back")

    def check_goes_on(self, life: WorkloadLife, record: Record) -> None:
        """Whether nothing but the successor's dispatch follows on a migration: it does not go through the queue."""
        if life.goes_on_as is None:
            return
        self.checks += 1
        if record.get("event") != "dispatched":
            self._add(f"has event {record.get('event')} between its migration and attempt {life.goes_on_as}")
        elif record.get("attempt") != life.goes_on_as:
            self._add(f"migrates to attempt {life.goes_on_as}, but is dispatched as attempt {record.get('attempt')}")
        life.goes_on_as = None

    def check_dispatch(self, life: WorkloadLife, number: int) -> None:
        """Whether an attempt of this number may begin now."""
        self.checks += 1
        if life.attempt is not None:
            self._add(f"is dispatched as attempt {number} while attempt {life.attempt.number} is live: they overlap")
        if number != life.attempts + 1:
            self._add(f"is dispatched as attempt {number}, but the attempts before it are {life.attempts}")
        if life.held and life.goes_on_as is None:
            self._add(f"is dispatched as attempt {number} while its user holds it")
        if life.cancelling:
            self._add(f"is dispatched as attempt {number} although it was evicted because it had been cancelled")

    def report_not_started(self, attempt: AttemptLife, record: Record) -> None:
        """For what only a running attempt can do."""
        self._add(f"has event {record.get('event')} of {attempt.name}, which has not started")

    def report_started_before(self, attempt: AttemptLife) -> None:
        """For an attempt that starts twice."""
        self._add(f"{attempt.name} starts again")

    def report_still_live(self, attempt: AttemptLife, record: Record) -> None:
        """For what only happens in the queue."""
        self._add(f"has event {record.get('event')} without an attempt, while {attempt.name} is live")

    def end(self, life: WorkloadLife, how: str) -> None:
        """The workload has ended."""
        self.checks += 1
        self._ended[life.name] = f"{how} (line {self._findings.line})"
        del self._open[life.name]

    def open_life(self, name: str) -> WorkloadLife | None:
        """A workload that has not ended; None for one that has, or never was."""
        return self._open.get(name)

    def check_all_ended(self) -> None:
        """At the end of a whole run."""
        for name in sorted(self._open):
            attempt = self._open[name].attempt
            where = f"attempt {attempt.number} is live in region {attempt.region}" if attempt else "it is in the queue"
            self._findings.workload = name
            self.checks += 1
            self._add(f"has not ended: {where}")
        self._findings.workload = None

    def _add(self, sentence: str) -> None:
        self._findings.add(Invariant.I8, sentence)
