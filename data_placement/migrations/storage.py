"""Storage of the regions while tables move: a copy takes room from its beginning, a deleted one until its end (I10)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId, TableId
from domain.table import Table
from domain.table_partitions import TablePartitions


@dataclass(frozen=True, slots=True)
class Storage:
    """How much regions can store, and what the catalog says that they do."""

    capacity_bytes: Mapping[RegionId, float] = field(default_factory=dict)
    """Of those that have a limit."""
    stored_bytes: Mapping[RegionId, int] = field(default_factory=dict)
    """Of all copies in the catalog: homes, replicas, and partitions that are held alone."""

    def free_bytes(self, migrations: Iterable[Migration]) -> dict[RegionId, float]:
        """By region with a limit: what is left beside the catalog's copies and what migrations reserve; negative where
        more is stored than fits."""
        free = {
            region: capacity - self.stored_bytes.get(region, 0)
            for region, capacity in sorted(self.capacity_bytes.items())
        }
        for migration in migrations:
            for region, taken in migration.reserved().items():
                if region in free:
                    free[region] -= taken
        return free


def stored_bytes(
    tables: Iterable[Table], partitions: Mapping[TableId, TablePartitions] = MappingProxyType({})
) -> dict[RegionId, int]:
    """Bytes of all copies, by region: as `copies_of` has them."""
    stored: dict[RegionId, int] = {}
    for table in tables:
        for region, held in copies_of(table, partitions.get(table.table)).items():
            stored[region] = stored.get(region, 0) + held
    return stored


def copies_of(table: Table, partitions: TablePartitions | None) -> dict[RegionId, int]:
    """Bytes of the table's copies, by region: those of complete ones, of those that are behind as far as they are known to
    reach, and of partitions that are held alone.
    """
    copies = dict.fromkeys(table.regions, table.size_bytes)
    if partitions is not None:
        complete = table.regions_up_to_date
        copies |= {region: partitions.held_bytes(region) for region in partitions.held if region not in complete}
    return copies


def room(free: Mapping[RegionId, float], region: RegionId) -> float:
    """Bytes that are free there; infinity where there is no limit."""
    return free.get(region, math.inf)
