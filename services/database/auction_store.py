"""Auction rounds in the database: any region opens, answers and closes them; a restart loses nothing.

Every function works inside the caller's transaction. A transaction that changes the state of the auction
holds the lock on the round's row (or on the table, to open one), so that a round is closed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from domain.diagnosis import FOR_WANT_OF_ROOM, Diagnosis
from domain.identifiers import AttemptNumber, RegionId, WorkloadId
from domain.life_cycle import TRANSITIONS, Happening
from domain.rank import QueuePosition, Standing
from regional_scheduler.auction import RoundOutcome, Won
from regional_scheduler.refusals.kinds import WorkloadKind
from regional_scheduler.rounds import Lot, RegionResponse
from services.database.auction_documents import (
    Document,
    lot_document,
    outcome_document,
    response_document,
    response_from_document,
)
from services.database.connection import AnyConnection, AnyCursor
from services.database.lease_store import Lease
from services.database.pipeline import together

ROUNDS_KEPT = 2_000
"""Older closed rounds are deleted with their answers: they only explain what happened, and events record that too."""

SortKey = tuple[int, int, float, float, str]


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A round as the database knows it; lots are documents without specifications."""

    number: int
    scan_pass: int
    now_s: float
    participants: tuple[RegionId, ...]
    lots: tuple[Document, ...]
    asked: int
    """So many of the first lots are to be answered at first."""
    reaches_end: bool
    answered: tuple[RegionId, ...]
    deadline_passed: bool
    deadline_in_real_s: float
    open_for_real_s: float
    """How long ago it was opened."""

    @property
    def is_due(self) -> bool:
        """Whether it can be closed without a further answer."""
        return self.deadline_passed or set(self.answered).issuperset(self.participants)


@dataclass(frozen=True, slots=True)
class AuctionProgress:
    """How far the auctions are: what the next round needs to know."""

    next_number: int
    newest_scan_pass: int | None
    """None: no scan pass yet."""
    is_open: bool
    """The newest round is not closed yet."""
    cursor: SortKey | None
    hints: Mapping[WorkloadId, RegionId]
    hints_of_kinds: Mapping[WorkloadKind, Sequence[RegionId]]
    next_window: int | None
    """How many lots the last outcome advises to ask next; None when it says nothing of it."""
    runs_alone: bool = True
    """Whether a long run of alike lots is put up alone: see `RoundOutcome.runs_alone`."""


@dataclass(frozen=True, slots=True)
class QueuedLot:
    """An entry of the queue that may be put up for auction."""

    position: QueuePosition
    attempt: AttemptNumber
    kind: WorkloadKind | None


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """A workload that no region can place, and why: NO_PLACE or NO_DATA."""

    workload: WorkloadId
    happening: Happening
    sentence: str
    diagnosis: Diagnosis


async def lock_open_round(connection: AnyConnection) -> int | None:
    """The number of the open round, if there is one; no other transaction closes it until this one ends.

    A statement of its own: what is read with the lock would be older than the lock where it was waited for.
    """
    cursor = await connection.execute("SELECT round FROM auction_rounds WHERE closed_at IS NULL FOR UPDATE")
    row = await cursor.fetchone()
    return None if row is None else int(row[0])


async def open_round(connection: AnyConnection) -> StoredRound | None:
    """The open round, if there is one."""
    cursor = await connection.execute(
        """SELECT r.round, r.scan_pass, r.now_s, r.participants, r.lots, clock_timestamp() >= r.deadline_at,
                  extract(epoch FROM r.deadline_at - clock_timestamp())::float8,
                  ARRAY(SELECT a.region FROM auction_responses a WHERE a.round = r.round ORDER BY a.region),
                  extract(epoch FROM clock_timestamp() - r.opened_at)::float8
             FROM auction_rounds r WHERE closed_at IS NULL"""
    )
    row = await cursor.fetchone()
    if row is None:
        return None
    return StoredRound(
        number=row[0],
        scan_pass=row[1],
        now_s=row[2],
        participants=tuple(RegionId(region) for region in row[3]),
        lots=tuple(row[4]["lots"]),
        asked=row[4].get("asked", len(row[4]["lots"])),  # rounds of before it was stored were asked in full
        reaches_end=row[4]["reaches_end"],
        answered=tuple(RegionId(region) for region in row[7]),
        deadline_passed=row[5],
        deadline_in_real_s=row[6],
        open_for_real_s=row[8],
    )


async def store_response(connection: AnyConnection, response: RegionResponse) -> None:
    """The region's answer; a second one to the same round changes nothing."""
    await connection.execute(
        """INSERT INTO auction_responses (round, region, response) VALUES (%s, %s, %s)
           ON CONFLICT DO NOTHING""",
        (response.round_number, response.region, Jsonb(response_document(response))),
    )


async def send_unless_last(connection: AnyConnection, lease: Lease, response: RegionResponse) -> AnyCursor:
    """Sends what stores the region's answer, if the round still waits for others and the lease is held; reads nothing.

    The cursor has one row when the answer is stored: the real seconds until the round's deadline. It is to be read after the
    transaction: everything up to the commit is sent at once, so that the round's lock is never held over a round trip.
    """
    number, region = response.round_number, response.region
    await connection.execute("SELECT FROM leases WHERE name = %s FOR NO KEY UPDATE", (lease.name,))
    await connection.execute("SELECT FROM auction_rounds WHERE round = %s AND closed_at IS NULL FOR UPDATE", (number,))
    return await connection.execute(
        """INSERT INTO auction_responses (round, region, response)
           SELECT r.round, %s, %s FROM auction_rounds r
            WHERE r.round = %s AND r.closed_at IS NULL AND clock_timestamp() < r.deadline_at
              AND EXISTS (SELECT FROM unnest(r.participants) AS p (region)
                           WHERE p.region <> %s AND NOT EXISTS (SELECT FROM auction_responses a
                                                                 WHERE a.round = r.round AND a.region = p.region))
              AND EXISTS (SELECT FROM leases l WHERE l.name = %s AND l.token = %s AND l.holder = %s
                                                  AND l.expires_at > clock_timestamp())
           ON CONFLICT DO NOTHING
        RETURNING (SELECT extract(epoch FROM r.deadline_at - clock_timestamp())::float8 FROM auction_rounds r
                    WHERE r.round = auction_responses.round)""",
        (region, Jsonb(response_document(response)), number, region, lease.name, lease.token, lease.holder),
    )


async def put_deadline_off(connection: AnyConnection, round_number: int, patience_real_s: float) -> None:
    """The region whose answer is the last one may take so long from now on to close the round."""
    await connection.execute(
        """UPDATE auction_rounds SET deadline_at = clock_timestamp() + make_interval(secs => %s)
            WHERE round = %s AND closed_at IS NULL""",
        (patience_real_s, round_number),
    )


async def load_responses(connection: AnyConnection, round_number: int) -> list[RegionResponse]:
    cursor = await connection.execute(
        "SELECT region, response FROM auction_responses WHERE round = %s ORDER BY region", (round_number,)
    )
    return [
        response_from_document(round_number, RegionId(region), document) for region, document in await cursor.fetchall()
    ]


async def load_progress(connection: AnyConnection) -> AuctionProgress:
    """Where the auctions stand after the last closed round."""
    cursor = await connection.execute(
        """SELECT newest.scan_pass, r.round, r.closed_at IS NULL, r.outcome
             FROM (SELECT max(scan_pass) AS scan_pass FROM scan_passes) AS newest
             LEFT JOIN (SELECT round, closed_at, outcome FROM auction_rounds ORDER BY round DESC LIMIT 1) AS r ON true"""
    )
    found = await cursor.fetchone()
    if found is None:
        raise LookupError("the server does not say how far the auctions are")
    newest_scan_pass, *row = found
    if row[0] is None or row[2] is None:
        next_number = 1 if row[0] is None else row[0] + 1
        return AuctionProgress(next_number, newest_scan_pass, row[0] is not None and row[1], None, {}, {}, None)
    outcome: dict[str, Any] = row[2]
    return AuctionProgress(
        next_number=row[0] + 1,
        newest_scan_pass=newest_scan_pass,
        is_open=row[1],
        cursor=None if outcome["cursor"] is None else tuple(outcome["cursor"]),
        hints={WorkloadId(workload): RegionId(region) for workload, region in outcome["hints"].items()},
        hints_of_kinds={
            WorkloadKind(kind): [RegionId(region) for region in regions]
            for kind, regions in outcome.get("hints_of_kinds", {}).items()
        },
        next_window=outcome.get("next_window"),  # outcomes of before it was stored have none
        runs_alone=outcome.get("runs_alone", True),
    )


def progress_after(outcome: RoundOutcome, newest_scan_pass: int | None, next_window: int) -> AuctionProgress:
    """The same in the transaction that closes the round, without asking the database for it."""
    return AuctionProgress(
        next_number=outcome.round_number + 1,
        newest_scan_pass=newest_scan_pass,
        is_open=False,
        cursor=None if outcome.cursor is None else outcome.cursor.sort_key,
        hints=outcome.hints(),
        hints_of_kinds=outcome.hints_of_kinds(),
        next_window=next_window,
        runs_alone=outcome.runs_alone,
    )


async def upcoming_lots(
    connection: AnyConnection,
    after: SortKey | None,
    limit: int,
    now: float,
    walk: int | None = None,
    *,
    again: bool = False,
) -> list[QueuedLot]:
    """Entries in queue order behind the cursor that are ranked, due, and not awarded already.

    Without those that this walk has asked (None: the one that is stored), and those of kinds that it has asked or that are
    known to find nothing; but, if `again`, with those that it has asked and for which some region has room by now. Goes from
    standing to standing: for all entries of one it is the same whom they are held against. Never returns a workload twice.
    """
    if after is None:
        return await upcoming_from(connection, await next_standing(connection, None), limit, now, walk, again=again)
    standing = Standing(after[0], after[1])
    lots, worse = await together(
        connection,
        upcoming_of(connection, standing, after, limit, now, walk, again=again),
        next_standing(connection, standing),
    )
    return await upcoming_from(connection, worse, limit, now, walk, again=again, before=lots)


async def upcoming_from(
    connection: AnyConnection,
    standing: Standing | None,
    limit: int,
    now: float,
    walk: int | None = None,
    *,
    again: bool = False,
    before: Sequence[QueuedLot] = (),
) -> list[QueuedLot]:
    """The same behind these, from the first entry of this standing on; None: none stands so badly."""
    # A scan pass may give an entry a worse standing between two of these statements, which would find it both times.
    lots = {lot.position.workload: lot for lot in before}
    while standing is not None and len(lots) < limit:
        found, standing = await together(
            connection,
            upcoming_of(connection, standing, None, limit - len(lots), now, walk, again=again),
            next_standing(connection, standing),
        )
        for lot in found:
            lots.setdefault(lot.position.workload, lot)
    return list(lots.values())


async def next_standing(connection: AnyConnection, last: Standing | None) -> Standing | None:
    """The best standing of any entry that is worse than this one."""
    cursor = await connection.execute(
        """SELECT priority, level FROM queue_entries
            WHERE priority IS NOT NULL AND (priority, level) > (%s, %s)
            ORDER BY priority, level, -credit, submitted_s, workload LIMIT 1""",
        last or (-1, -1),
    )
    row = await cursor.fetchone()
    return None if row is None else Standing(row[0], row[1])


async def upcoming_of(
    connection: AnyConnection,
    standing: Standing,
    after: SortKey | None,
    limit: int,
    now: float,
    walk: int | None = None,
    *,
    again: bool = False,
) -> list[QueuedLot]:
    """Those that stand so. What is refused is looked up by hash, for there may be a hundred thousand to pass over."""
    # The comparison of rows matches the expressions of the index queue_order, so this reads no more than it passes over.
    behind = "AND (-q.credit, q.submitted_s, q.workload) > (%s, %s, %s)" if after else ""
    asked = "r.walk = (SELECT walk FROM walk)" + (" AND NOT r.has_room" if again else "")
    refused = f"(r.priority, r.level) <= (%s, %s) AND (r.holds OR ({asked}))"
    cursor = await connection.execute(
        f"""WITH walk AS MATERIALIZED (SELECT coalesce(%s::bigint, (SELECT w.walk FROM auction_walks w)) AS walk)
            SELECT u.workload, u.priority, u.level, u.credit, u.submitted_s, u.within_quota, w.attempts, u.kind
              FROM (SELECT q.workload, q.priority, q.level, q.credit, q.submitted_s, q.within_quota, q.kind
                      FROM queue_entries q
                     WHERE q.priority = %s AND q.level = %s AND q.not_before_s <= %s {behind}
                       AND q.asked_in_walk IS DISTINCT FROM (SELECT walk FROM walk)
                       AND (q.kind IS NULL
                            OR (q.kind, q.within_quota) NOT IN (
                                   SELECT r.kind, r.within_quota FROM auction_refusals r
                                    WHERE r.tenant = '' AND {refused})
                           AND (q.kind, q.within_quota, q.tenant) NOT IN (
                                   SELECT r.kind, r.within_quota, r.tenant FROM auction_refusals r
                                    WHERE r.tenant <> '' AND {refused}))
                       AND NOT EXISTS (SELECT FROM awards a WHERE a.workload = q.workload)
                     ORDER BY q.priority, q.level, -q.credit, q.submitted_s, q.workload LIMIT %s) AS u
              JOIN workloads w USING (workload)
             ORDER BY u.priority, u.level, -u.credit, u.submitted_s, u.workload""",
        (walk, *standing, now, *(after or ())[2:], *standing, *standing, limit),
    )
    return [
        QueuedLot(
            QueuePosition(WorkloadId(row[0]), Standing(row[1], row[2]), row[3], row[4], row[5]),
            AttemptNumber(row[6] + 1),
            None if row[7] is None else WorkloadKind(row[7]),
        )
        for row in await cursor.fetchall()
    ]


async def insert_round(
    connection: AnyConnection,
    *,
    number: int,
    scan_pass: int,
    now_s: float,
    participants: Sequence[RegionId],
    lots: Sequence[Lot],
    asked: int,
    reaches_end: bool,
    answer_timeout_real_s: float,
) -> None:
    """Opens a round, unless one is open: of that the caller is sure that holds the lock of the walk and has looked."""
    await connection.execute(
        """INSERT INTO auction_rounds (round, scan_pass, opened_at, deadline_at, now_s, participants, lots)
           VALUES (%s, %s, clock_timestamp(), clock_timestamp() + make_interval(secs => %s), %s, %s, %s)
           ON CONFLICT DO NOTHING""",
        (
            number,
            scan_pass,
            answer_timeout_real_s,
            now_s,
            list(participants),
            Jsonb({"lots": [lot_document(lot) for lot in lots], "asked": asked, "reaches_end": reaches_end}),
        ),
    )


async def store_outcome(
    connection: AnyConnection,
    outcome: RoundOutcome,
    closed_by: RegionId,
    *,
    next_window: int,
) -> None:
    """Closes the round: verdicts, awards, and what the next round is to begin with."""
    await connection.execute(
        "UPDATE auction_rounds SET closed_at = clock_timestamp(), closed_by = %s, outcome = %s WHERE round = %s",
        (closed_by, Jsonb(outcome_document(outcome, next_window)), outcome.round_number),
    )
    won = [(index, verdict) for index, verdict in enumerate(outcome.verdicts) if isinstance(verdict, Won)]
    if won:
        # A workload may have been cancelled since the round was opened: its award would have no entry to come from.
        await connection.execute(
            """INSERT INTO awards (workload, region, round, lot)
               SELECT u.workload, u.region, %s, u.lot
                 FROM unnest(%s::text[], %s::text[], %s::int[]) AS u (workload, region, lot)
                 JOIN queue_entries q USING (workload)
               ON CONFLICT DO NOTHING""",
            (
                outcome.round_number,
                [verdict.lot.workload.workload for _, verdict in won],
                [verdict.winner for _, verdict in won],
                [index for index, _ in won],
            ),
        )
    if outcome.round_number % 256 == 0:
        await connection.execute(
            "DELETE FROM auction_rounds WHERE round < %s AND closed_at IS NOT NULL",
            (outcome.round_number - ROUNDS_KEPT,),
        )


async def mark_undecided(
    connection: AnyConnection, marks: Sequence[Unplaceable], *, refresh_reasons: bool
) -> set[WorkloadId]:
    """Stores why these have no place, beside the new state; returns those whose state is new.

    As long as the reason stays the same, so does the time since when it is known. The numbers in a reason change all the time. Unless `refresh_reasons`, only a new state is worth a write.
    """
    if not marks:
        return set()
    rows = [(row.value, happening.value, after.value) for (row, happening), after in TRANSITIONS.items()]
    cursor = await connection.execute(
        """WITH life (before, happening, after) AS (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])),
                u AS (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::jsonb[])
                              AS u (workload, happening, reason, diagnosis)),
                before AS (SELECT q.workload, q.state, life.after, u.reason, u.diagnosis
                             FROM queue_entries q JOIN u USING (workload)
                             JOIN life ON life.before = q.state AND life.happening = u.happening
                            WHERE q.state <> life.after OR (%s AND q.reason <> u.reason)
                            ORDER BY q.workload FOR UPDATE OF q),
                changed AS (UPDATE queue_entries q SET state = before.after, reason = before.reason,
                                   diagnosis = CASE
                                       WHEN q.diagnosis ? 'since_s' AND before.diagnosis ? 'since_s'
                                        AND (q.diagnosis ->> 'reason' = before.diagnosis ->> 'reason'
                                             OR (q.diagnosis ->> 'reason' = ANY(%s)
                                                 AND before.diagnosis ->> 'reason' = ANY(%s)))
                                       THEN before.diagnosis
                                            || jsonb_build_object('since_s', q.diagnosis -> 'since_s')
                                       ELSE before.diagnosis END
                              FROM before WHERE before.workload = q.workload
                         RETURNING q.workload, q.state)
           SELECT changed.workload FROM changed JOIN before USING (workload) WHERE changed.state <> before.state""",
        (
            [row[0] for row in rows],
            [row[1] for row in rows],
            [row[2] for row in rows],
            [mark.workload for mark in marks],
            [mark.happening.value for mark in marks],
            [mark.sentence for mark in marks],
            [Jsonb(mark.diagnosis.as_json()) for mark in marks],
            refresh_reasons,
            [*FOR_WANT_OF_ROOM],
            [*FOR_WANT_OF_ROOM],
        ),
    )
    return {WorkloadId(row[0]) for row in await cursor.fetchall()}
