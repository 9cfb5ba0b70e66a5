"""An attempt goes on elsewhere: its successor takes over where it ended, its quota and its standing."""

from __future__ import annotations

from cluster_manager.attempt_run.actions import RecordEnd
from cluster_manager.attempt_run.run import facts_of, new_run
from domain.cells import virtual_cluster_of
from domain.events import Event, EventKind
from domain.identifiers import RegionId
from formats.event_details import dispatched_details
from services.database.attempt_store import NewAttempt
from services.database.reclassification_store import StoredStanding
from services.database.reservation_store import ReservedPlace
from services.regional_scheduler.live_attempts import LiveAttempt


def successor_attempt(
    attempt: LiveAttempt, stands: StoredStanding, end: RecordEnd, place: ReservedPlace, now: float
) -> LiveAttempt:
    """The attempt that follows one that ended in order to go on elsewhere."""
    facts = facts_of(place.key, attempt.specification, end.checkpoint_progress, attempt.run.facts.failures)
    return LiveAttempt(
        run=new_run(facts),
        tenant=attempt.tenant,
        specification=attempt.specification,
        standing=stands.standing,
        within_quota=stands.within_quota,
        guaranteed=stands.within_quota,
        dispatched_s=max(now, end.ended_s),
        charges=stands.charges,
        placements=place.placements,
        tuned=attempt.tuned,
    )


def migrated_event(region: RegionId, successor: LiveAttempt) -> Event:
    """The successor begins, in the region that kept its place."""
    return Event(
        successor.dispatched_s,
        EventKind.DISPATCHED,
        successor.key.workload,
        successor.key.attempt,
        successor.tenant,
        successor.standing.priority,
        successor.standing.level,
        region,
        details=dispatched_details(
            successor.placements,
            (),
            within_quota=successor.within_quota,
            guaranteed=successor.guaranteed,
            virtual_cluster=virtual_cluster_of(successor.cells),
        ),
    )


def new_attempt(attempt: LiveAttempt) -> NewAttempt:
    """The attempt as it is stored at its dispatch."""
    return NewAttempt(
        key=attempt.key,
        tenant=attempt.tenant,
        standing=attempt.standing,
        within_quota=attempt.within_quota,
        guaranteed=attempt.guaranteed,
        dispatched_s=attempt.dispatched_s,
        progress_at_start=attempt.run.facts.progress_at_start,
        charges=attempt.charges,
        placements=attempt.placements,
        cells=attempt.cells,
        profiles_revision=attempt.tuned.revision,
    )
