"""Which tables belong together, because the same jobs read them: as the newest plan found it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from psycopg.types.json import Jsonb

from services.database.connection import AnyConnection


@dataclass(frozen=True, slots=True)
class StoredCommunity:
    """A community, as `data_placement.community_explanation.Community` is as a JSON object, and the plan that found it."""

    plan: int
    described: Mapping[str, object]


async def store_communities(
    connection: AnyConnection,
    plan: int,
    described: Iterable[Mapping[str, object]],
    tables: Iterable[tuple[str, int]],
) -> None:
    """Of a plan that has none yet. `tables`: those that have a community, and its place among the described ones."""
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY data_communities (plan, community, described) FROM STDIN") as copy,
    ):
        for number, one in enumerate(described):
            await copy.write_row((plan, number, Jsonb(dict(one))))
    async with (
        connection.cursor() as cursor,
        cursor.copy("COPY data_table_communities (plan, data_table, community) FROM STDIN") as copy,
    ):
        for table, number in tables:
            await copy.write_row((plan, table, number))


async def forget_communities(connection: AnyConnection, but: int) -> None:
    """Of all plans but that one."""
    await connection.execute("DELETE FROM data_table_communities WHERE plan <> %s", (but,))
    await connection.execute("DELETE FROM data_communities WHERE plan <> %s", (but,))


async def load_community(connection: AnyConnection, table: str) -> StoredCommunity | None:
    """The community of a table by the newest plan that is ready, or was; None where it has none, or there is no plan."""
    cursor = await connection.execute(
        """SELECT c.plan, c.described FROM data_table_communities t JOIN data_communities c USING (plan, community)
             JOIN data_plans p USING (plan)
            WHERE t.data_table = %s AND p.state NOT IN ('running', 'failed') ORDER BY c.plan DESC LIMIT 1""",
        (table,),
    )
    row = await cursor.fetchone()
    return None if row is None else StoredCommunity(int(row[0]), row[1])
