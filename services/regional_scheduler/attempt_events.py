"""What the log says of attempts that are asked to leave."""

from __future__ import annotations

from collections.abc import Sequence

from cluster_manager.attempt_run.events import Eviction
from domain.events import Event, EventKind
from domain.identifiers import RegionId
from services.regional_scheduler.live_attempts import LiveAttempt


def evicting_events(region: RegionId, leaving: Sequence[tuple[LiveAttempt, Eviction]], now: float) -> list[Event]:
    """These attempts were asked to leave."""
    return [
        Event(
            now,
            EventKind.EVICTING,
            attempt.key.workload,
            attempt.key.attempt,
            attempt.tenant,
            attempt.standing.priority,
            attempt.standing.level,
            region,
            details=eviction.as_json(),
        )
        for attempt, eviction in leaving
    ]
