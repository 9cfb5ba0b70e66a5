"""What clusters reported becomes history: starts, checkpoints, progress and ends, with their events, in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster_manager.attempt_run.actions import RecordCheckpoint, RecordEnd, RecordStart
from cluster_manager.attempt_run.events import CancellationNoted, Eviction
from cluster_manager.attempt_run.machine import step
from cluster_manager.attempt_run.run import AttemptRun
from domain.events import Event, EventKind, EvictionCause, JsonValue
from domain.identifiers import ClusterId, RegionId
from domain.life_cycle import State
from domain.placement import AttemptKey
from domain.rank import Standing
from domain.workload import TableInput
from formats.event_details import loss_details, placement_details
from services.database import (
    attempt_store,
    catalog_store,
    event_store,
    lease_store,
    placement_change_store,
    quota_store,
    reservation_store,
)
from services.database.attempt_store import AttemptProgress
from services.database.channels import SCAN_CHANNEL, START_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.lease_store import Lease
from services.database.pipeline import together
from services.database.placement_change_store import Changed
from services.database.reclassification_store import StoredStanding
from services.database.requeue_store import requeued_entry
from services.database.reservation_store import ReservedPlace
from services.regional_scheduler.attempt_events import evicting_events
from services.regional_scheduler.gang_reports import end_of, start_of
from services.regional_scheduler.live_attempts import LiveAttempt, change_carried_out
from services.regional_scheduler.migration import migrated_event, new_attempt, successor_attempt


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the transaction wrote; the caller now does the same to its memory."""

    runs: Mapping[AttemptKey, AttemptRun]
    """Where the attempts stand of which something was written, ended ones too."""
    started: tuple[RecordStart, ...]
    ended: tuple[RecordEnd, ...]
    changed: tuple[tuple[AttemptKey, Changed], ...] = ()
    """Whose change of placements is carried out."""
    successors: tuple[tuple[RegionId, LiveAttempt], ...] = ()
    """Attempts that go on elsewhere for those that have migrated."""


async def record_reports(
    connection: AnyConnection,
    region: RegionId,
    reported: Sequence[LiveAttempt],
    checkpoints: Sequence[RecordCheckpoint],
    now: float,
    lease: Lease | None = None,
) -> Recorded:
    """Writes what is new about these attempts, whose reports and progress are up to date in memory.

    Raises LeaseLost, and writes nothing, when it is to be done in the name of a lease that is not held.
    """
    by_key = {attempt.key: attempt for attempt in reported}
    runs: dict[AttemptKey, AttemptRun] = {}
    starts = _take_starts(reported, runs)
    _, (ends, migrating), started, changed = await together(
        connection,
        _fence(connection, lease),
        _take_ends_and_places(connection, region, reported, runs, now),
        attempt_store.record_started(connection, [(start.key, start.started_s) for start in starts]),
        _finish_changes(connection, reported),
    )
    ending = {end.key for end in ends}
    # What ends is written once, with its end.
    await attempt_store.record_progress(
        connection, [_progress_of(attempt) for attempt in reported if attempt.key not in ending]
    )
    await attempt_store.record_checkpoints(
        connection, [(checkpoint.key, checkpoint.progress, checkpoint.saved_s) for checkpoint in checkpoints]
    )
    requeued = {
        end.key.workload: requeued_entry(by_key[end.key].specification)
        for end in ends
        if end.next_state is State.PENDING and end.key not in migrating
    }

    async def give_back(stood: Mapping[AttemptKey, StoredStanding]) -> None:
        # What an attempt that migrates had of the quota its successor has: nothing is given back, and nothing charged.
        returned = [(key, one) for key, one in stood.items() if one.within_quota and key not in migrating]
        await quota_store.release(connection, [(by_key[key].tenant, one.charges) for key, one in returned])

    ended = await attempt_store.record_ends(connection, ends, requeued, give_back)
    # A scan pass may have re-classified them since we looked; from here on it cannot, for their rows are locked.
    stands = started | ended
    recorded = Recorded(
        {key: run for key, run in runs.items() if key in stands},
        tuple(start for start in starts if start.key in started),
        tuple(end for end in ends if end.key in ended),
        changed,
    )
    successors = await _go_on_elsewhere(connection, recorded.ended, by_key, stands, migrating, now)
    recorded = replace(recorded, successors=successors)
    await event_store.append(connection, _events(region, by_key, recorded, checkpoints, stands, migrating))
    # An attempt whose change is carried out may give up something again.
    if recorded.ended or recorded.changed:
        wake_after_commit(connection, SCAN_CHANNEL)
    if recorded.started:
        wake_after_commit(connection, START_CHANNEL)
    return recorded


def _events(
    region: RegionId,
    by_key: Mapping[AttemptKey, LiveAttempt],
    recorded: Recorded,
    checkpoints: Sequence[RecordCheckpoint],
    stands: Mapping[AttemptKey, StoredStanding],
    migrating: Mapping[AttemptKey, ReservedPlace],
) -> list[Event]:
    """What the log says of it. What ended while nobody could record it comes in the order in which it did."""
    ended = sorted(recorded.ended, key=lambda end: (end.ended_s, end.key))
    return [
        *(_started_event(region, by_key[start.key], stands[start.key], start) for start in recorded.started),
        *(_changed_event(region, by_key[key], since) for key, since in recorded.changed),
        *(_checkpointed_event(region, by_key[checkpoint.key], checkpoint) for checkpoint in checkpoints),
        *(_ended_event(region, by_key[end.key], stands[end.key], end, migrating) for end in ended),
        *(migrated_event(elsewhere, successor) for elsewhere, successor in recorded.successors),
    ]


async def _fence(connection: AnyConnection, lease: Lease | None) -> None:
    if lease is not None:
        await lease_store.assert_held(connection, lease)


async def _finish_changes(
    connection: AnyConnection, reported: Sequence[LiveAttempt]
) -> tuple[tuple[AttemptKey, Changed], ...]:
    """Writes which changes of placements are carried out; returns those for which that is news."""
    carried_out = [
        (attempt.key, attempt.revision, _changed(attempt)) for attempt in reported if change_carried_out(attempt)
    ]
    news = await placement_change_store.finish_changes(connection, carried_out)
    return tuple((key, since) for key, _, since in carried_out if key in news)


def _changed(attempt: LiveAttempt) -> Changed:
    changed: dict[ClusterId, tuple[float, float]] = {}
    for cluster in attempt.clusters:
        report = attempt.reports[cluster]
        carried_out = report.revision >= attempt.revision
        # A part that was completed before it was asked stays so when its cluster manager starts again.
        changed[cluster] = (
            (report.changed_s, report.changed_progress) if carried_out else (report.since_s, report.progress)
        )
    return changed


async def _take_ends_and_places(
    connection: AnyConnection,
    region: RegionId,
    reported: Sequence[LiveAttempt],
    runs: dict[AttemptKey, AttemptRun],
    now: float,
) -> tuple[list[RecordEnd], dict[AttemptKey, ReservedPlace]]:
    """The ends among these, and the places of those attempts that go on elsewhere."""
    ends = await _take_ends(connection, reported, runs, now)
    inputs = {attempt.key: attempt.specification.tables for attempt in reported}
    return ends, await _take_places(connection, region, ends, inputs)


async def _take_places(
    connection: AnyConnection,
    region: RegionId,
    ends: Sequence[RecordEnd],
    inputs: Mapping[AttemptKey, Sequence[TableInput]],
) -> dict[AttemptKey, ReservedPlace]:
    """Ends the reservations of workloads whose attempts end; returns those of attempts that go on elsewhere.

    In a region without a scheduler nothing would start the successor, and one that does not hold what it reads any more may not (I3):
    then the workload returns to the queue.
    """
    places = await reservation_store.take(connection, [end.key.workload for end in ends])
    served = {region}
    if any(place.region != region for place in places.values()):
        served |= await lease_store.served_regions(connection, lease_store.ABSENCE_REAL_S)
    going_on = {
        end.key: places[end.key.workload]
        for end in ends
        if end.migrates and end.key.workload in places and places[end.key.workload].region in served
    }
    read = sorted({one.table for key in going_on for one in inputs[key]})
    catalog = await catalog_store.hold_where_they_are(connection, read)
    return {key: place for key, place in going_on.items() if not catalog.missing_tables(place.region, inputs[key])}


async def _go_on_elsewhere(
    connection: AnyConnection,
    ended: Sequence[RecordEnd],
    by_key: Mapping[AttemptKey, LiveAttempt],
    stands: Mapping[AttemptKey, StoredStanding],
    migrating: Mapping[AttemptKey, ReservedPlace],
    now: float,
) -> tuple[tuple[RegionId, LiveAttempt], ...]:
    """Writes the successors of attempts that have migrated, in the regions that kept their places."""
    successors = tuple(
        (migrating[end.key].region, successor_attempt(by_key[end.key], stands[end.key], end, migrating[end.key], now))
        for end in ended
        if end.key in migrating
    )
    for elsewhere, successor in successors:
        await attempt_store.dispatch(connection, elsewhere, [new_attempt(successor)])
    return successors


def _take_starts(reported: Iterable[LiveAttempt], runs: dict[AttemptKey, AttemptRun]) -> list[RecordStart]:
    """The starts among these; `runs` gets where their attempts stand then."""
    starts = []
    for attempt in reported:
        event = start_of(attempt)
        if event is not None:
            runs[attempt.key], actions = step(attempt.run, event)
            starts += [action for action in actions if isinstance(action, RecordStart)]
    return starts


async def _take_ends(
    connection: AnyConnection, reported: Iterable[LiveAttempt], runs: dict[AttemptKey, AttemptRun], now: float
) -> list[RecordEnd]:
    """The ends among these; a cancellation that was asked for meanwhile keeps a workload from being queued again."""
    candidates = [(attempt, event) for attempt in reported if (event := end_of(attempt, now)) is not None]
    if not candidates:
        return []
    cursor = await connection.execute(
        # Locked: a cancellation that comes now finds the workload where this transaction leaves it.
        """SELECT workload, cancel_requested, reason FROM workloads WHERE workload = ANY(%s)
            ORDER BY workload FOR NO KEY UPDATE""",
        ([attempt.key.workload for attempt, _ in candidates],),
    )
    cancelled = {row[0]: row[2] for row in await cursor.fetchall() if row[1]}
    ends = []
    for attempt, event in candidates:
        run = runs.get(attempt.key, attempt.run)
        if attempt.key.workload in cancelled:
            run, _ = step(run, CancellationNoted(now))
        runs[attempt.key], actions = step(run, event)
        for end in actions:
            if isinstance(end, RecordEnd):
                # Why the user wanted it no more says more than how its tasks took that.
                said = cancelled.get(end.key.workload) if end.end == "cancelled" else None
                ends.append(end._replace(reason=said) if said else end)
    return ends


def _progress_of(attempt: LiveAttempt) -> AttemptProgress:
    run = attempt.run
    return AttemptProgress(attempt.key, run.progress, run.checkpoint_progress, run.throughput)


async def begin_evictions(
    connection: AnyConnection,
    region: RegionId,
    leaving: Sequence[tuple[LiveAttempt, Eviction]],
    now: float,
) -> set[AttemptKey]:
    """Writes that these attempts are asked to leave; returns those that were not leaving already."""
    marked = await attempt_store.begin_evictions(
        connection, [(attempt.key, eviction) for attempt, eviction in leaving], now
    )
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


def _started_event(region: RegionId, attempt: LiveAttempt, stands: StoredStanding, start: RecordStart) -> Event:
    details: dict[str, JsonValue] = {
        "placement": placement_details(attempt.placements),
        "within_quota": stands.within_quota,
        "progress": attempt.run.facts.progress_at_start,
        "emulated": attempt.specification.emulated,
    }
    if attempt.specification.emulated:
        speed = attempt.tuned.rate(attempt.specification, attempt.placements)
        if speed != 1.0:
            details["speed"] = speed
    return _attempt_event(region, attempt, stands.standing, start.started_s, EventKind.STARTED, details)


def _checkpointed_event(region: RegionId, attempt: LiveAttempt, checkpoint: RecordCheckpoint) -> Event:
    details: dict[str, JsonValue] = {"progress": checkpoint.progress}
    return _attempt_event(region, attempt, attempt.standing, checkpoint.saved_s, EventKind.CHECKPOINTED, details)


def _changed_event(region: RegionId, attempt: LiveAttempt, since: Changed) -> Event:
    """The attempt was resized or retuned: it holds this from then on."""
    if attempt.change is None:
        raise ValueError(f"{attempt.key} was not to be changed")
    details: dict[str, JsonValue] = {"placement": placement_details(attempt.placements)}
    if attempt.specification.emulated:
        details["speed"] = attempt.tuned.rate(attempt.specification, attempt.placements)
    details |= loss_details(attempt.change.cause, attempt.change.lost)
    since_s = max(since_s for since_s, _ in since.values())
    return _attempt_event(region, attempt, attempt.standing, since_s, EventKind(attempt.change.kind.value), details)


def _ended_event(
    region: RegionId,
    attempt: LiveAttempt,
    stands: StoredStanding,
    end: RecordEnd,
    migrating: Mapping[AttemptKey, ReservedPlace],
) -> Event:
    details: dict[str, JsonValue] = {"progress": end.progress, "checkpoint_progress": end.checkpoint_progress}
    if attempt.specification.emulated:
        details["emulated"] = True
    match end.end:
        case "completed":
            kind = EventKind.COMPLETED
        case "cancelled":
            kind = EventKind.CANCELLED
            details["reason"] = end.reason
        case "failed":
            kind = EventKind.FAILED
            details |= {"reason": end.reason, "final": end.next_state is State.FAILED}
            if end.exit_code is not None:
                details["exit_code"] = end.exit_code
            if attempt.eviction is not None and attempt.eviction.cause is EvictionCause.TIME_LIMIT:
                details |= attempt.eviction.as_json()
        case _:
            kind = EventKind.EVICTED
            eviction = attempt.eviction
            details |= {"cause": end.end} if eviction is None else eviction.as_json()
            details["reason"] = end.reason
            if end.key in migrating:
                details["successor"] = int(migrating[end.key].key.attempt)
    return _attempt_event(region, attempt, stands.standing, end.ended_s, kind, details)
