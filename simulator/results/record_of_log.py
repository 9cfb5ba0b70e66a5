"""The tables of a run from its event log (docs/events.md), of the simulator or of the live service.

The log is read as a stream, in its order. It is trusted to be legal (`topmast validate` says whether it is); what
cannot be read as a run at all is refused with its line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from domain.events import EventKind, JsonValue
from domain.fleet import Fleet
from formats.problems import FieldProblem, FormatError
from simulator.results.guaranteed_use import is_guaranteed
from simulator.results.log_tables import AttemptRow, LogTables, WorkloadRow
from simulator.results.run_record import END_OF_CAUSE, AttemptEnd, RunRecord, WorkloadEnd
from simulator.validation.record_fields import (
    BadField,
    Record,
    flag_field,
    number_field,
    optional_number,
    optional_text,
    records_field,
    text_field,
    whole_field,
    wholes_field,
)


def record_of_log(
    records: Iterable[Mapping[str, JsonValue]],
    fleet: Fleet,
    *,
    policy: str = "",
    trace: str = "",
    seed: int = 0,
    ended_s: float | None = None,
    source: str = "event log",
) -> RunRecord:
    """The tables of the run that these records tell (`formats.event_log.read_records`, or `Event.as_json`).

    The run lasts from the first submission to the last end; where workloads have not ended it was over at
    `ended_s`, or else at the last record, which of a simulation is `run_ended`. Raises FormatError, which names `source`, for a record that is not what docs/events.md says, for
    one about something unknown (a workload that was never submitted, a machine or region that the fleet does not
    have), and for a log without workloads.
    """
    reader = _LogReader(fleet)
    line = 0
    for line, record in enumerate(records, 1):
        try:
            reader.read(record)
        except BadField as error:
            raise FormatError(source, [FieldProblem(f"line {line}", str(error))]) from error
    if not reader.tables.workloads:
        description = f"has {line} events and no workload; a run begins with the event submitted"
        raise FormatError(source, [FieldProblem("", description)])
    if ended_s is not None:
        reader.tables.last_s = max(reader.tables.last_s, ended_s)
    return reader.tables.record(policy=policy, trace=trace, seed=seed)


class _LogReader:
    """Fed with the records of a log in its order; `tables` is what they say."""

    def __init__(self, fleet: Fleet) -> None:
        self.tables = LogTables(fleet)
        self._handlers: MappingProxyType[str, Callable[[Record, float], None]] = MappingProxyType(
            {
                EventKind.SUBMITTED.value: self._submitted,
                EventKind.RANKED.value: self._ranked,
                EventKind.PROMOTED.value: self._promoted,
                EventKind.DISPATCHED.value: self._dispatched,
                EventKind.RECLASSIFIED.value: self._reclassified,
                EventKind.STARTED.value: self._started,
                EventKind.CHECKPOINTED.value: self._checkpointed,
                EventKind.RESIZED.value: self._changed,
                EventKind.TUNED.value: self._changed,
                EventKind.EVICTED.value: self._evicted,
                EventKind.COMPLETED.value: self._completed,
                EventKind.FAILED.value: self._failed,
                EventKind.CANCELLED.value: self._cancelled,
                EventKind.MACHINE_DOWN.value: self._machine_down,
                EventKind.MACHINE_UP.value: self._machine_up,
                EventKind.LOANED.value: self._loaned,
                EventKind.RECLAIMED.value: self._reclaimed,
                EventKind.RUN_ENDED.value: self._run_ended,
            }
        )
        self._standings: dict[str, tuple[int, int]] = {}
        """Priority and level of live attempts, by workload."""
        self._known = frozenset(kind.value for kind in EventKind)

    def read(self, record: Record) -> None:
        """Takes in one record; raises BadField."""
        kind, t_s = text_field(record, "event"), number_field(record, "t")
        self.tables.last_s = max(self.tables.last_s, t_s)
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(record, t_s)
        elif kind not in self._known:
            raise BadField(f"has event {kind}, which is no kind of event")

    def _run_ended(self, record: Record, _t_s: float) -> None:
        self.tables.stalled = flag_field(record, "stalled")
        self.tables.not_submitted = whole_field(record, "not_submitted")

    # In the queue.

    def _submitted(self, record: Record, t_s: float) -> None:
        name = text_field(record, "workload")
        if name in self.tables.workloads:
            raise BadField(f"submits workload {name} again; 'topmast validate' shows all that is wrong with a log")
        gpus = sum(whole_field(job, "tasks") * whole_field(job, "gpus") for job in records_field(record, "jobs"))
        row = WorkloadRow(name, text_field(record, "tenant"), t_s, gpus, optional_number(record, "work_s"))
        row.kept = row.done_before = optional_number(record, "checkpoint_progress") or 0.0
        self.tables.workloads[name] = row

    def _ranked(self, record: Record, _t_s: float) -> None:
        workload = self._workload(record)
        self._stands(workload, record)

    def _promoted(self, _record: Record, _t_s: float) -> None:
        self.tables.promotions += 1

    # Attempts.

    def _dispatched(self, record: Record, t_s: float) -> None:
        workload = self._workload(record)
        if workload.live is not None:
            raise BadField(
                f"dispatches workload {workload.name} while its attempt {workload.live.number} is live; "
                "'topmast validate' shows all that is wrong with a log"
            )
        self._stands(workload, record)
        self._standings[workload.name] = whole_field(record, "priority"), whole_field(record, "level")
        attempt = AttemptRow(
            workload=workload,
            number=whole_field(record, "attempt", 1),
            region=self.tables.region(text_field(record, "region")),
            priority=whole_field(record, "priority"),
            level=whole_field(record, "level"),
            dispatched_s=t_s,
            guaranteed=self._is_guaranteed(record),
            progress_at_start=workload.kept,
        )
        attempt.hold(self._gpus_of_machines(record), t_s)
        attempt.gpus = sum(share.gpus for share in attempt.shares)
        if workload.first_attempt is None:
            workload.first_attempt = attempt
        workload.live = attempt
        self.tables.attempts.append(attempt)

    def _reclassified(self, record: Record, _t_s: float) -> None:
        name, standing = text_field(record, "workload"), (whole_field(record, "priority"), whole_field(record, "level"))
        before = self._standings.get(name, standing)
        self._standings[name] = standing
        if before[0] == standing[0] and before[1] < standing[1]:
            self.tables.demotions += 1

    def _started(self, record: Record, t_s: float) -> None:
        attempt = self._attempt(record)
        attempt.started_s = t_s
        attempt.progress_at_start = number_field(record, "progress")
        if flag_field(record, "emulated"):
            attempt.works(t_s, _speed(record), attempt.progress_at_start)
        # What was planned at dispatch is what it holds, unless it was tuned or resized in between.
        attempt.begin(self._gpus_of_machines(record))
        attempt.gpus = sum(share.gpus for share in attempt.shares)
        if attempt.workload.first_started_s is None:
            attempt.workload.first_started_s = t_s

    def _checkpointed(self, record: Record, _t_s: float) -> None:
        self._attempt(record).checkpoint = number_field(record, "progress")

    def _changed(self, record: Record, t_s: float) -> None:
        """Resized or tuned."""
        attempt = self._attempt(record)
        attempt.hold(self._gpus_of_machines(record), t_s)
        if attempt.speed is not None:
            attempt.works(t_s, _speed(record), attempt.progress_at(t_s))

    def _evicted(self, record: Record, t_s: float) -> None:
        attempt = self._attempt(record)
        cause = text_field(record, "cause")
        if cause not in END_OF_CAUSE:
            raise BadField(f"has cause {cause}; known are {', '.join(sorted(END_OF_CAUSE))}")
        attempt.evicted_by = optional_text(record, "by")
        kept = number_field(record, "checkpoint_progress")
        self._end_attempt(attempt, t_s, END_OF_CAUSE[cause], number_field(record, "progress"), kept)

    # The end.

    def _completed(self, record: Record, t_s: float) -> None:
        attempt, progress = self._attempt(record), number_field(record, "progress")
        self._end_attempt(attempt, t_s, AttemptEnd.COMPLETED, progress, progress)
        _end_workload(attempt.workload, t_s, WorkloadEnd.COMPLETED)

    def _failed(self, record: Record, t_s: float) -> None:
        workload, final = self._workload(record), flag_field(record, "final")
        if record.get("attempt") is not None:
            kept = number_field(record, "checkpoint_progress")
            self._end_attempt(self._attempt(record), t_s, AttemptEnd.FAILED, number_field(record, "progress"), kept)
        if final:
            _end_workload(workload, t_s, WorkloadEnd.FAILED)

    def _cancelled(self, record: Record, t_s: float) -> None:
        workload = self._workload(record)
        if record.get("attempt") is not None:
            progress = number_field(record, "progress")
            self._end_attempt(self._attempt(record), t_s, AttemptEnd.CANCELLED, progress, progress)
        _end_workload(workload, t_s, WorkloadEnd.CANCELLED)

    # Machines.

    def _machine_down(self, record: Record, t_s: float) -> None:
        self._is_not_there(record, t_s, EventKind.MACHINE_DOWN)

    def _machine_up(self, record: Record, t_s: float) -> None:
        if record.get("still_down") is not True:
            self._is_there(record, t_s, EventKind.MACHINE_DOWN)

    def _reclaimed(self, record: Record, t_s: float) -> None:
        self._is_of_inference(record)
        self._is_not_there(record, t_s, EventKind.RECLAIMED)

    def _loaned(self, record: Record, t_s: float) -> None:
        self._is_of_inference(record)
        self._is_there(record, t_s, EventKind.RECLAIMED)

    def _is_of_inference(self, record: Record) -> None:
        machine = self.tables.machine(text_field(record, "machine"))
        if machine is not None:
            self.tables.inference_machines.add(machine)

    def _is_not_there(self, record: Record, t_s: float, cause: EventKind) -> None:
        """Training has one machine less, for one cause or for both."""
        machine = self.tables.machine(text_field(record, "machine"))
        self.tables.not_there_because.setdefault(machine, set()).add(cause)
        self.tables.down_since.setdefault(machine, t_s)

    def _is_there(self, record: Record, t_s: float, no_more: EventKind) -> None:
        """One cause is over; when there is no other, training has the machine again."""
        machine = self.tables.machine(text_field(record, "machine"))
        causes = self.tables.not_there_because.get(machine, set())
        causes.discard(no_more)
        since_s = None if causes else self.tables.down_since.pop(machine, None)
        if since_s is not None:
            self.tables.downs.append((machine, since_s, t_s))

    # What several kinds have in common.

    def _workload(self, record: Record) -> WorkloadRow:
        name = text_field(record, "workload")
        workload = self.tables.workloads.get(name)
        if workload is None:
            raise BadField(f"is about workload {name}, which was never submitted; is this the whole log?")
        return workload

    def _attempt(self, record: Record) -> AttemptRow:
        workload, number = self._workload(record), whole_field(record, "attempt", 1)
        attempt = workload.live
        if attempt is None or attempt.number != number:
            raise BadField(
                f"is about attempt {number} of workload {workload.name}, which is not live; "
                "'topmast validate' shows all that is wrong with a log"
            )
        return attempt

    def _stands(self, workload: WorkloadRow, record: Record) -> None:
        workload.ranked_priority = whole_field(record, "priority")
        workload.ranked_within_quota = flag_field(record, "within_quota")
        if workload.ranked_within_quota:
            self.tables.tenant_priority[workload.tenant] = workload.ranked_priority
        if workload.first_attempt is None:
            workload.within_quota = workload.ranked_within_quota

    def _is_guaranteed(self, record: Record) -> bool:
        guaranteed = flag_field(record, "guaranteed" if "guaranteed" in record else "within_quota")
        clusters = [
            text_field(entry, "cluster")
            for entry in records_field(record, "placement")
            if self.tables.with_cells and wholes_field(entry, "gpus")
        ]
        return is_guaranteed(guaranteed, optional_text(record, "virtual_cluster"), clusters, self.tables.with_cells)

    def _gpus_of_machines(self, record: Record) -> dict[int, int]:
        """By position of the machine; tasks without GPUs are left out."""
        held: dict[int, int] = {}
        for entry in records_field(record, "placement"):
            gpus = len(wholes_field(entry, "gpus"))
            if gpus:
                machine = self.tables.machine(text_field(entry, "machine"))
                if machine is None:
                    raise BadField(f"places GPUs on machine {entry['machine']}, which has none in this fleet")
                held[machine] = held.get(machine, 0) + gpus
        return held

    def _end_attempt(self, attempt: AttemptRow, t_s: float, end: AttemptEnd, progress: float, kept: float) -> None:
        attempt.close(t_s)
        attempt.end, attempt.progress_at_end, attempt.progress_kept = end, progress, kept
        attempt.workload.live, attempt.workload.kept = None, kept


def _speed(record: Record) -> float:
    speed = optional_number(record, "speed")
    return 1.0 if speed is None else speed


def _end_workload(workload: WorkloadRow, t_s: float, end: WorkloadEnd) -> None:
    if workload.live is not None:
        raise BadField(
            f"ends workload {workload.name} while its attempt {workload.live.number} is live; "
            "'topmast validate' shows all that is wrong with a log"
        )
    workload.end, workload.ended_s = end, t_s
