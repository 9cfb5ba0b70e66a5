"""What the catalog says of a table from the switch to its copy on, and why it cannot name the copy."""

from __future__ import annotations

from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId
from domain.table import Table
from services.database.connection import AnyConnection
from services.database.partition_copy_store import forget_partition_copies


async def write_table(
    connection: AnyConnection, moved: Table, migration: Migration, revision: int, *, is_partial: bool
) -> None:
    """Home and replicas as they are after the switch; from now on no fleet file says where this table is. `is_partial`:
    the copy holds partitions alone.
    """
    await connection.execute(
        "UPDATE data_tables SET home = %s, revision = %s, from_fleet = false WHERE data_table = %s",
        (moved.home, revision, moved.table),
    )
    if is_partial:
        return
    await connection.execute(
        "DELETE FROM data_table_replicas WHERE data_table = %s AND NOT region = ANY (%s)",
        (moved.table, list(moved.replicas)),
    )
    complete = [region for region in (migration.target, migration.leaves) if region in moved.replicas]
    await connection.execute(
        """INSERT INTO data_table_replicas (data_table, region, complete_until_s)
           SELECT t.data_table, u.region, t.last_partition_s FROM data_tables t, unnest(%s::text[]) AS u (region)
            WHERE t.data_table = %s
           ON CONFLICT (data_table, region) DO UPDATE SET complete_until_s = excluded.complete_until_s""",
        (complete, moved.table),
    )
    await forget_partition_copies(connection, moved.table, [migration.target])


async def why_changed(connection: AnyConnection, migration: Migration) -> str:
    """Why what was copied may be another table by now, in a sentence; empty: it is the same. Partitions that were exchanged
    for others of equal size show in the revision alone.
    """
    cursor = await connection.execute(
        """SELECT 1 FROM data_migrations m JOIN data_tables t USING (data_table)
            WHERE m.number = %s AND m.table_revision <> t.revision""",
        (migration.number,),
    )
    return (
        "" if await cursor.fetchone() is None else f"the catalog of {migration.table} has changed since its copy began"
    )


async def enqueue_the_rest(connection: AnyConnection, migration: Migration, now: float) -> None:
    """Of a copy that brought fewer partitions than are wanted since it began: another one, for the same reasons."""
    await connection.execute(
        """INSERT INTO data_migrations (data_table, source, target, moves_home, size_bytes, priority, deadline_s, on_demand,
                                        plan, newest_partitions, state, planned_s)
           SELECT data_table, source, target, false, size_bytes, priority, deadline_s, on_demand, plan, newest_partitions,
                  'planned', %s
             FROM data_migrations
            WHERE number = %s AND (newest_partitions IS NULL OR newest_partitions > jsonb_array_length(partitions))""",
        (now, migration.number),
    )


async def why_no_region(connection: AnyConnection, region: RegionId) -> str:
    """Why no table can be there, in a sentence; empty: it can."""
    cursor = await connection.execute("SELECT 1 FROM regions WHERE region = %s", (region,))
    return "" if await cursor.fetchone() is not None else f"region {region} is not in the fleet any more"
