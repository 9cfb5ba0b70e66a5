"""What happens in a simulation, in the schema of the event log (docs/events.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.events import Eviction
from cluster_manager.guarded_mechanism import MechanismFailure
from data_placement.migrations.migration import Migration
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ClusterId, MachineId, RegionId
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import LossCause
from domain.plan import TaskName
from domain.rank import Standing
from domain.reservation import Reservation, ReservationEnd
from domain.table import Table
from formats.event_details import (
    dispatched_details,
    jobs_details,
    loss_details,
    mechanism_failed_details,
    placement_details,
    promoted_details,
    reservation_ended_details,
    reserved_details,
    submitted_details,
    undecided_details,
)
from formats.table_events import table_moved_details
from regional_scheduler.auction import AwaitingData, Verdict, Won
from simulator.engine.workloads import SimulatedWorkload

EventSink: TypeAlias = Callable[[Event], None]
"""Takes the events in the order in which they happen."""


class SimulatedEvents:
    """Hands an event to a sink for everything that happens."""

    def __init__(self, sink: EventSink, regions: Sequence[RegionId]) -> None:
        self._sink = sink
        self._regions = tuple(regions)

    def submitted(self, work: SimulatedWorkload, now: float) -> None:
        specification = work.workload.specification
        details = submitted_details(specification)
        if work.attempts_before:
            details |= {"attempts": work.attempts_before, "checkpoint_progress": work.done_before}
        event = Event(now, EventKind.SUBMITTED, work.workload.workload, tenant=specification.tenant, details=details)
        self._sink(event)

    def ranked(self, work: SimulatedWorkload, standing: Standing, now: float) -> None:
        details: dict[str, JsonValue] = {"credit": work.credit, "within_quota": work.within_quota}
        self._tell(work, EventKind.RANKED, now, details, standing=standing, attempt=False)

    def promoted(self, work: SimulatedWorkload, standing: Standing, now: float) -> None:
        """`standing` is the one from now on; what it attained is still what it had attained."""
        details = promoted_details(now - work.queued_since_s, work.attained_s, work.attained_gpu_s)
        self._tell(work, EventKind.PROMOTED, now, details, standing=standing, attempt=False)

    def waiting(self, work: SimulatedWorkload, verdict: Verdict, now: float) -> None:
        diagnosis = None if isinstance(verdict, Won) else verdict.diagnosis
        self._tell(work, EventKind.WAITING, now, undecided_details(verdict.sentence, diagnosis), attempt=False)

    def awaiting_data(self, work: SimulatedWorkload, verdict: AwaitingData, now: float) -> None:
        details = undecided_details(verdict.sentence, verdict.diagnosis)
        details["tables"] = [*verdict.tables]
        self._tell(work, EventKind.AWAITING_DATA, now, details, attempt=False)

    def dispatched(
        self,
        work: SimulatedWorkload,
        placements: Sequence[TaskPlacement],
        evicts: Sequence[AttemptKey],
        now: float,
        own_cells: Sequence[AttemptKey] = (),
    ) -> None:
        """`own_cells`: those of the victims that use its own cells opportunistically."""
        details = dispatched_details(
            placements,
            evicts,
            within_quota=work.within_quota,
            guaranteed=work.guaranteed,
            virtual_cluster=work.virtual_cluster,
            own_cells=own_cells,
        )
        if work.ways and work.workload is not work.submitted:
            details["jobs"] = jobs_details(work.workload.specification)
        self._tell(work, EventKind.DISPATCHED, now, details)

    def started(
        self, work: SimulatedWorkload, placements: Sequence[TaskPlacement], now: float, speed: float = 1.0
    ) -> None:
        details: dict[str, JsonValue] = {
            "placement": placement_details(placements),
            "within_quota": work.within_quota,
            "progress": work.progress,
            "emulated": True,
        }
        if speed != 1.0:
            details["speed"] = speed
        self._tell(work, EventKind.STARTED, now, details)

    def changed(
        self,
        work: SimulatedWorkload,
        kind: EventKind,
        placements: Sequence[TaskPlacement],
        speed: float,
        now: float,
        cause: LossCause | None = None,
        lost: Sequence[TaskName] = (),
    ) -> None:
        """It was resized or retuned, or has lost these tasks."""
        details: dict[str, JsonValue] = {"placement": placement_details(placements), "speed": speed}
        self._tell(work, kind, now, details | loss_details(cause, lost))

    def change_refused(
        self, work: SimulatedWorkload, kind: EventKind, cluster: ClusterId, reason: str, now: float
    ) -> None:
        """A change of what it holds will not come about."""
        self._tell(work, EventKind.CHANGE_REFUSED, now, {"change": kind.value, "reason": reason}, cluster=cluster)

    def cells_changed(
        self, work: SimulatedWorkload, kind: EventKind, details: dict[str, JsonValue], now: float
    ) -> None:
        """It was downgraded or restored."""
        self._tell(work, kind, now, details)

    def reclassified(self, work: SimulatedWorkload, now: float) -> None:
        self._tell(work, EventKind.RECLASSIFIED, now, {"within_quota": work.within_quota})

    def evicting(self, work: SimulatedWorkload, eviction: Eviction, now: float) -> None:
        self._tell(work, EventKind.EVICTING, now, _cause_of(eviction))

    def evicted(
        self, work: SimulatedWorkload, eviction: Eviction, end: RecordEnd, successor: int | None = None
    ) -> None:
        """`successor`: the number of the attempt that goes on elsewhere for it."""
        details = _cause_of(eviction)
        details |= {"progress": end.progress, "checkpoint_progress": end.checkpoint_progress}
        if successor is not None:
            details["successor"] = successor
        self._tell(work, EventKind.EVICTED, end.ended_s, details)

    def cancelled(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        self._tell(work, EventKind.CANCELLED, end.ended_s, {"progress": end.progress})

    def failed(self, work: SimulatedWorkload, end: RecordEnd) -> None:
        """For good: its time limit was reached."""
        details: dict[str, JsonValue] = {"reason": end.reason, "final": True}
        details |= {"progress": end.progress, "checkpoint_progress": end.checkpoint_progress}
        if work.run.eviction is not None:
            details |= _cause_of(work.run.eviction)
        self._tell(work, EventKind.FAILED, end.ended_s, details)

    def completed(self, work: SimulatedWorkload, now: float) -> None:
        self._tell(work, EventKind.COMPLETED, now, {"progress": work.work_s, "checkpoint_progress": work.work_s})

    def machine(
        self, kind: EventKind, region: RegionId, cluster: ClusterId, machine: MachineId, reason: str, now: float
    ) -> None:
        """`machine_down`, `machine_up`, or that it was loaned or reclaimed."""
        self._sink(Event(now, kind, region=region, cluster=cluster, details={"machine": machine, "reason": reason}))

    def reserved(self, reservation: Reservation, work: SimulatedWorkload, now: float) -> None:
        """Machines are kept for the workload, which waits."""
        self._tell_reservation(EventKind.RESERVED, reservation, work, reserved_details(reservation), now)

    def reservation_ended(
        self, reservation: Reservation, work: SimulatedWorkload, reason: ReservationEnd, now: float
    ) -> None:
        """They are not any more."""
        details = reservation_ended_details(reason)
        self._tell_reservation(EventKind.RESERVATION_ENDED, reservation, work, details, now)

    def _tell_reservation(
        self,
        kind: EventKind,
        reservation: Reservation,
        work: SimulatedWorkload,
        details: dict[str, JsonValue],
        now: float,
    ) -> None:
        standing, tenant = reservation.standing, work.workload.specification.tenant
        self._sink(
            Event(
                now,
                kind,
                reservation.workload,
                tenant=tenant,
                priority=standing.priority,
                level=standing.level,
                region=reservation.region,
                details=details,
            )
        )

    def mechanism_failed(self, region: RegionId, failure: MechanismFailure, now: float) -> None:
        """A mechanism of a package did something wrong."""
        details = mechanism_failed_details(failure.mechanism, failure.asked, failure.error)
        self._sink(Event(now, EventKind.MECHANISM_FAILED, region=region, cluster=failure.cluster, details=details))

    def loan_short(self, region: RegionId, cluster: ClusterId, machines: int, now: float) -> None:
        """Inference wants so many machines more than are on loan."""
        details: dict[str, JsonValue] = {"machines": machines}
        self._sink(Event(now, EventKind.LOAN_SHORT, region=region, cluster=cluster, details=details))

    def run_ended(self, now: float, *, stalled: bool, not_submitted: int) -> None:
        """The run is over, and workloads are not: some have not ended, or so many were not even submitted."""
        self._sink(Event(now, EventKind.RUN_ENDED, details={"stalled": stalled, "not_submitted": not_submitted}))

    def table_moved(self, table: Table, source: RegionId, migration: Migration, now: float) -> None:
        """`table` is where it is from now on; `source` was its home."""
        held_alone = dict(table.newest_held).get(migration.target)
        details = table_moved_details(
            table,
            source,
            migration.copy_bytes,
            moves_home=migration.moves_home,
            on_demand=migration.on_demand,
            newest_partitions=held_alone,
        )
        self._sink(Event(now, EventKind.TABLE_MOVED, region=migration.target, details=details))

    def invariant_broken(self, region: RegionId | None, sentence: str, now: float) -> None:
        """What must always hold does not."""
        self._sink(Event(now, EventKind.INVARIANT_BROKEN, region=region, details={"invariant": sentence}))

    def _tell(
        self,
        work: SimulatedWorkload,
        kind: EventKind,
        now: float,
        details: dict[str, JsonValue],
        *,
        standing: Standing | None = None,
        attempt: bool = True,
        cluster: ClusterId | None = None,
    ) -> None:
        stands = work.standing if standing is None else standing
        self._sink(
            Event(
                now,
                kind,
                work.workload.workload,
                work.attempts if attempt else None,
                work.workload.specification.tenant,
                stands.priority,
                stands.level,
                self._regions[work.region] if attempt else None,
                cluster,
                details=details,
            )
        )


def _cause_of(eviction: Eviction) -> dict[str, JsonValue]:
    details = eviction.as_json()
    details.pop("by_attempt", None)
    return details
