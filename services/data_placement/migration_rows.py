"""A migration as a row of `data_migrations`."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg.types.json import Jsonb

from data_placement.migrations.life_cycle import MigrationState
from data_placement.migrations.migration import Migration, RoutePart
from domain.identifiers import RegionId, TableId

MIGRATION_COLUMNS = """number, data_table, size_bytes, target, CASE WHEN moves_home THEN source END, priority, deadline_s, on_demand,
              newest_partitions, partitions, state, parts, copy_bytes, failures, retry_s, reason, keeps_old_copy"""


def parts_document(parts: Sequence[RoutePart]) -> Jsonb | None:
    """How it is copied, as `parts` holds it; None: nothing has to be."""
    return Jsonb([[list(part.path), part.bytes] for part in parts]) if parts else None


def migration_of_row(row: Sequence[object]) -> Migration:
    """The migration of a row of MIGRATION_COLUMNS."""
    number, table, size, target, leaves, priority, deadline_s, on_demand, newest, partitions, state, parts, *rest = row
    copy_bytes, failures, retry_s, reason, keeps_old_copy = rest
    return Migration(
        int(str(number)),
        TableId(str(table)),
        int(str(size)),
        RegionId(str(target)),
        None if leaves is None else RegionId(str(leaves)),
        int(str(priority)),
        None if deadline_s is None else float(str(deadline_s)),
        bool(on_demand),
        None if newest is None else int(str(newest)),
        tuple(map(str, partitions)) if isinstance(partitions, list) else (),
        MigrationState(str(state)),
        _parts(parts),
        int(str(copy_bytes)),
        int(str(failures)),
        float(str(retry_s)),
        str(reason),
        bool(keeps_old_copy),
    )


def _parts(document: object) -> tuple[RoutePart, ...]:
    if not isinstance(document, list):
        return ()
    return tuple(RoutePart(tuple(RegionId(region) for region in path), size) for path, size in document)
