"""What events about tables say besides the common fields (docs/events.md), as the service and the simulator both write them."""

from __future__ import annotations

from domain.events import JsonValue
from domain.identifiers import RegionId
from domain.table import Table


def table_moved_details(
    table: Table,
    source: RegionId,
    copied_bytes: int,
    *,
    moves_home: bool,
    on_demand: bool,
    newest_partitions: int | None = None,
) -> dict[str, JsonValue]:
    """Of `table_moved`: where the table is from now on, and where its home was before. `newest_partitions`: so many were
    copied, and not all.
    """
    parts: dict[str, JsonValue] = {} if newest_partitions is None else {"newest_partitions": newest_partitions}
    return {
        "table": table.table,
        "source": source,
        "kind": "home" if moves_home else "copy",
        "home": table.home,
        "replicas": [*table.replicas],
        "bytes": copied_bytes,
        "on_demand": on_demand,
        **parts,
    }
