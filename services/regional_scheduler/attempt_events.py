"""What the log says of attempts that are asked to leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cluster_manager.attempt_run.events import Eviction
from domain.events import Event, EventKind, JsonValue
from domain.identifiers import RegionId
from domain.placement import AttemptKey
from formats.event_details import cells_details
from services.regional_scheduler.live_attempts import LiveAttempt
from services.regional_scheduler.plan_writing import NewCells


def evicting_events(region: RegionId, leaving: Sequence[tuple[LiveAttempt, Eviction]], now: float) -> list[Event]:
    """These attempts were asked to leave."""
    return [_event_of(attempt, EventKind.EVICTING, region, eviction.as_json(), now) for attempt, eviction in leaving]


def cell_events(
    region: RegionId,
    changed: Sequence[NewCells],
    attempt_of: Callable[[AttemptKey], LiveAttempt | None],
    now: float,
) -> list[Event]:
    """These attempts have lost cells or got some again."""
    return [
        _event_of(attempt, new.kind, region, cells_details(new.cells, new.by), now)
        for new in changed
        if (attempt := attempt_of(new.key)) is not None
    ]


def _event_of(
    attempt: LiveAttempt, kind: EventKind, region: RegionId, details: Mapping[str, JsonValue], now: float
) -> Event:
    return Event(
        now,
        kind,
        attempt.key.workload,
        attempt.key.attempt,
        attempt.tenant,
        attempt.standing.priority,
        attempt.standing.level,
        region,
        details=details,
    )
