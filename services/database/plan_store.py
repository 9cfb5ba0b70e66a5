"""Plans of where tables should be: one at a time is made, by whoever the leader starts for it, and kept for review."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from psycopg.types.json import Jsonb

from domain.identifiers import RegionId
from services.database.channels import CATALOG_CHANNEL
from services.database.community_store import forget_communities
from services.database.connection import AnyConnection, wake_after_commit
from services.database.revision_store import Subject, lock_revision, raise_revision

LONGEST_PROBLEM = 4_000


class PlanState(StrEnum):
    """How far a plan is."""

    RUNNING = "running"
    READY = "ready"
    """It waits for review."""
    APPLIED = "applied"
    SUPERSEDED = "superseded"
    """There is a newer one."""
    FAILED = "failed"


class PlanUnderWay(Exception):
    """Another plan is being made."""


class PlanGivenUp(Exception):
    """Nobody waits for the plan any more."""


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """A plan without its moves."""

    plan: int
    state: PlanState
    settings: Mapping[str, object]
    asked_s: float
    ended_s: float | None
    applied_s: float | None
    stage: str
    done: float
    figures: Mapping[str, object] | None
    problem: str
    applied: Mapping[str, object] | None = None
    """What `record_applied` was given."""


@dataclass(frozen=True, slots=True)
class StoredMove:
    """What a plan proposes of a table, and its place in the order."""

    position: int
    table: str
    source: str
    target: str
    kind: str
    size_bytes: int
    priority: int | None
    reason: str
    newest_share: float | None = None
    """A copy of the newest partitions alone, which are this part of the table's bytes; None: of all of it."""


_COLUMNS = "plan, state, settings, asked_s, ended_s, applied_s, stage, done, figures, problem, applied"


async def begin_plan(connection: AnyConnection, settings: Mapping[str, object], now_s: float) -> int:
    """The number of a new plan, which is being made from now on. Raises PlanUnderWay while another one is."""
    cursor = await connection.execute(
        "INSERT INTO data_plans (state, settings, asked_s) VALUES ('running', %s, %s) ON CONFLICT DO NOTHING RETURNING plan",
        (Jsonb(dict(settings)), now_s),
    )
    row = await cursor.fetchone()
    if row is None:
        raise PlanUnderWay("another plan is being made; wait until it is ready")
    return int(row[0])


async def abandon_plan(connection: AnyConnection, problem: str, now_s: float, plan: int | None = None) -> None:
    """Says that the plan that is being made, or this one if it still is, will never be ready."""
    await connection.execute(
        """UPDATE data_plans SET state = 'failed', problem = %s, ended_s = %s
            WHERE state = 'running' AND plan = coalesce(%s, plan)""",
        (problem[:LONGEST_PROBLEM], now_s, plan),
    )


async def record_progress(connection: AnyConnection, plan: int, stage: str, done: float) -> bool:
    """Says how far it is; False: it is not to go on, for it was given up."""
    cursor = await connection.execute(
        "UPDATE data_plans SET stage = %s, done = %s WHERE plan = %s AND state = 'running'", (stage, done, plan)
    )
    return cursor.rowcount == 1


async def finish_plan(
    connection: AnyConnection,
    plan: int,
    figures: Mapping[str, object],
    moves: Iterable[StoredMove],
    hints: Mapping[str, RegionId],
    revision: int,
    now_s: float,
) -> None:
    """Stores what was found; it takes the place of all that wait for review, and its hints that of all earlier ones. Of those
    the moves are forgotten, but for those of the plan that was applied last.

    Raises PlanGivenUp when it is not wanted any more; the transaction must be rolled back then.
    """
    # There may be millions: the catalog is locked when they are there.
    await connection.execute(
        """DELETE FROM data_plan_moves
            WHERE plan <> coalesce((SELECT max(plan) FROM data_plans WHERE state = 'applied'), -1) AND plan < %s""",
        (plan,),
    )
    await _store_moves(connection, plan, moves)
    await lock_revision(connection, Subject.CATALOG)
    cursor = await connection.execute(
        """UPDATE data_plans SET state = 'ready', figures = %s, catalog_revision = %s, ended_s = %s, stage = '', done = 1
            WHERE plan = %s AND state = 'running'""",
        (Jsonb(dict(figures)), revision, now_s, plan),
    )
    if cursor.rowcount != 1:
        raise PlanGivenUp
    await connection.execute("UPDATE data_plans SET state = 'superseded' WHERE state = 'ready' AND plan < %s", (plan,))
    await forget_communities(connection, but=plan)
    await connection.execute("DELETE FROM data_hints")
    await connection.execute(
        "INSERT INTO data_hints (fingerprint, region, plan) SELECT f, r, %s FROM unnest(%s::text[], %s::text[]) AS u (f, r)",
        (plan, list(hints), list(hints.values())),
    )
    await raise_revision(connection, Subject.CATALOG)
    wake_after_commit(connection, CATALOG_CHANNEL)


async def _store_moves(connection: AnyConnection, plan: int, moves: Iterable[StoredMove]) -> None:
    async with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY data_plan_moves (plan, position, data_table, source, target, kind, size_bytes, priority, reason,
                                     newest_share)
               FROM STDIN"""
        ) as copy,
    ):
        for move in moves:
            await copy.write_row(
                (
                    plan,
                    move.position,
                    move.table,
                    move.source,
                    move.target,
                    move.kind,
                    move.size_bytes,
                    move.priority,
                    move.reason,
                    move.newest_share,
                )
            )


async def load_plan(connection: AnyConnection, plan: int | None = None) -> StoredPlan | None:
    """That plan, or the newest; None where there is none. One that could not be made is the newest only where all are such."""
    cursor = await connection.execute(
        f"""SELECT {_COLUMNS} FROM data_plans WHERE plan = coalesce(%s, plan)
             ORDER BY state = 'failed', plan DESC LIMIT 1""",
        (plan,),
    )
    row = await cursor.fetchone()
    return None if row is None else StoredPlan(int(row[0]), PlanState(row[1]), *row[2:])


async def last_asked_s(connection: AnyConnection) -> float | None:
    """When a plan was asked for last; None: never."""
    row = await (await connection.execute("SELECT max(asked_s) FROM data_plans")).fetchone()
    return None if row is None else row[0]


async def count_moves(connection: AnyConnection, plan: int) -> int:
    row = await (await connection.execute("SELECT count(*) FROM data_plan_moves WHERE plan = %s", (plan,))).fetchone()
    return 0 if row is None else int(row[0])


async def load_moves(connection: AnyConnection, plan: int, after: int, limit: int) -> list[StoredMove]:
    """The moves of a plan behind a position (-1: all), in their order."""
    cursor = await connection.execute(
        """SELECT position, data_table, source, target, kind, size_bytes, priority, reason, newest_share FROM data_plan_moves
            WHERE plan = %s AND position > %s ORDER BY position LIMIT %s""",
        (plan, after, limit),
    )
    return [StoredMove(*row) for row in await cursor.fetchall()]


async def moves_of_table(connection: AnyConnection, plan: int, table: str) -> list[StoredMove]:
    """What a plan proposes of one table."""
    cursor = await connection.execute(
        """SELECT position, data_table, source, target, kind, size_bytes, priority, reason, newest_share FROM data_plan_moves
            WHERE plan = %s AND data_table = %s ORDER BY position""",
        (plan, table),
    )
    return [StoredMove(*row) for row in await cursor.fetchall()]


async def mark_applied(connection: AnyConnection, plan: int, now_s: float) -> bool:
    """False, and nothing is changed, when it does not wait for review."""
    cursor = await connection.execute(
        "UPDATE data_plans SET state = 'applied', applied_s = %s WHERE plan = %s AND state = 'ready'", (now_s, plan)
    )
    return cursor.rowcount == 1


async def record_applied(connection: AnyConnection, plan: int, answer: Mapping[str, object]) -> None:
    """Keeps what was answered, for whoever applies the plan again because the answer was lost."""
    await connection.execute("UPDATE data_plans SET applied = %s WHERE plan = %s", (Jsonb(dict(answer)), plan))


async def load_hints(connection: AnyConnection) -> dict[str, RegionId]:
    """By fingerprint of a recurring workload, the region that the last plan gave it."""
    cursor = await connection.execute("SELECT fingerprint, region FROM data_hints")
    return {str(fingerprint): RegionId(region) for fingerprint, region in await cursor.fetchall()}
