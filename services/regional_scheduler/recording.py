"""What clusters reported becomes history: starts, checkpoints, progress and ends, with their events, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from domain.events import Event, EventKind, JsonValue
from domain.identifiers import ANY_GPU_MODEL, RegionId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from domain.workload import WorkloadSpecification
from formats.event_details import placement_details
from services.database import attempt_store, event_store, quota_store
from services.database.attempt_store import AttemptEnd, AttemptProgress, Eviction, RequeuedEntry, StoredStanding
from services.database.channels import SCAN_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.regional_scheduler.dispatching import evicting_events
from services.regional_scheduler.live_attempts import LiveAttempt, end_of, started_s


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the transaction wrote; the caller now does the same to its memory."""

    started: tuple[tuple[AttemptKey, float], ...]
    ended: tuple[AttemptEnd, ...]


async def record_reports(
    connection: AnyConnection,
    region: RegionId,
    reported: Sequence[LiveAttempt],
    checkpoints: Sequence[tuple[AttemptKey, float, float]],
    now: float,
) -> Recorded:
    """Writes what is new about these attempts, whose reports and progress are up to date in memory.

    `checkpoints` are new ones: (attempt, progress, saved_s).
    """
    starts = _starts(reported)
    ends = await _ends(connection, reported, now)
    by_key = {attempt.key: attempt for attempt in reported}
    started = await attempt_store.record_started(connection, starts)
    await attempt_store.record_progress(
        connection,
        [
            AttemptProgress(attempt.key, attempt.progress, attempt.checkpoint_progress, attempt.throughput)
            for attempt in reported
        ],
    )
    await attempt_store.record_checkpoints(connection, checkpoints)
    requeued = {
        end.key.workload: requeued_entry(by_key[end.key].specification)
        for end in ends
        if end.next_state is State.PENDING
    }
    ended_keys = await attempt_store.record_ends(connection, ends, requeued)
    ended = tuple(end for end in ends if end.key in ended_keys)
    # A scan pass may have re-classified them since we looked; from here on it cannot, for their rows are locked.
    stands = await attempt_store.stands(connection, [*started, *ended_keys])
    await quota_store.release(
        connection,
        [(by_key[end.key].tenant, stands[end.key].charges) for end in ended if stands[end.key].within_quota],
    )
    await event_store.append(
        connection,
        [
            *(_started_event(region, by_key[key], stands[key], since_s) for key, since_s in starts if key in started),
            *(_checkpointed_event(region, by_key[key], progress, saved_s) for key, progress, saved_s in checkpoints),
            *(_ended_event(region, by_key[end.key], stands[end.key], end) for end in ended),
        ],
    )
    if ended:
        wake_after_commit(connection, SCAN_CHANNEL)
    return Recorded(tuple(start for start in starts if start[0] in started), ended)


def _starts(reported: Iterable[LiveAttempt]) -> list[tuple[AttemptKey, float]]:
    starts = []
    for attempt in reported:
        if attempt.started_s is None:
            since_s = started_s(attempt)
            if since_s is not None:
                starts.append((attempt.key, since_s))
    return starts


async def _ends(connection: AnyConnection, reported: Sequence[LiveAttempt], now: float) -> list[AttemptEnd]:
    """The ends among these; a cancellation that was asked for meanwhile keeps a workload from being queued again."""
    candidates = [attempt for attempt in reported if end_of(attempt, cancel_requested=False, now=now) is not None]
    if not candidates:
        return []
    cursor = await connection.execute(
        # Locked: a cancellation that comes now finds the workload where this transaction leaves it.
        """SELECT workload, cancel_requested FROM workloads WHERE workload = ANY(%s)
            ORDER BY workload FOR NO KEY UPDATE""",
        ([attempt.key.workload for attempt in candidates],),
    )
    cancelled = {row[0] for row in await cursor.fetchall() if row[1]}
    ends = []
    for attempt in candidates:
        end = end_of(attempt, cancel_requested=attempt.key.workload in cancelled, now=now)
        if end is not None:
            ends.append(end)
    return ends


def requeued_entry(specification: WorkloadSpecification) -> RequeuedEntry:
    """What the queue entry of this workload says it asks for."""
    demand = specification.demand
    (model, gpus), *more = demand.gpus or ((ANY_GPU_MODEL, 0),)
    return RequeuedEntry(model, gpus, demand.cpus, {str(name): count for name, count in more})


async def begin_evictions(
    connection: AnyConnection,
    region: RegionId,
    leaving: Sequence[tuple[LiveAttempt, Eviction]],
    now: float,
) -> set[AttemptKey]:
    """Writes that these attempts are asked to leave; returns those that were not leaving already."""
    marked = await attempt_store.begin_evictions(connection, [(attempt.key, eviction) for attempt, eviction in leaving])
    news = [(attempt, eviction) for attempt, eviction in leaving if attempt.key in marked]
    await event_store.append(connection, evicting_events(region, news, now))
    return marked


def _attempt_event(
    region: RegionId,
    attempt: LiveAttempt,
    standing: Standing,
    t: float,
    kind: EventKind,
    details: Mapping[str, JsonValue],
) -> Event:
    return Event(
        t,
        kind,
        attempt.key.workload,
        attempt.key.attempt,
        attempt.tenant,
        standing.priority,
        standing.level,
        region,
        details=details,
    )


def _started_event(region: RegionId, attempt: LiveAttempt, stands: StoredStanding, since_s: float) -> Event:
    return _attempt_event(
        region,
        attempt,
        stands.standing,
        since_s,
        EventKind.STARTED,
        {
            "placement": placement_details(attempt.placements),
            "within_quota": stands.within_quota,
            "progress": attempt.progress_at_start,
            "emulated": attempt.specification.emulated,
        },
    )


def _checkpointed_event(region: RegionId, attempt: LiveAttempt, progress: float, saved_s: float) -> Event:
    return _attempt_event(region, attempt, attempt.standing, saved_s, EventKind.CHECKPOINTED, {"progress": progress})


def _ended_event(region: RegionId, attempt: LiveAttempt, stands: StoredStanding, end: AttemptEnd) -> Event:
    details: dict[str, JsonValue] = {"progress": end.progress, "checkpoint_progress": end.checkpoint_progress}
    if attempt.specification.emulated:
        details["emulated"] = True
    match end.end:
        case "completed":
            kind = EventKind.COMPLETED
        case "cancelled":
            kind = EventKind.CANCELLED
        case "failed":
            kind = EventKind.FAILED
            details |= {"reason": end.reason, "final": end.next_state is State.FAILED}
        case _:
            kind = EventKind.EVICTED
            eviction: Eviction | None = attempt.eviction
            details |= {"cause": end.end} if eviction is None else eviction.as_json()
            details["reason"] = end.reason
    return _attempt_event(region, attempt, stands.standing, end.ended_s, kind, details)


def ended_workloads(recorded: Recorded) -> list[WorkloadId]:
    """The workloads whose attempts ended, in the order they were recorded."""
    return [end.key.workload for end in recorded.ended]
