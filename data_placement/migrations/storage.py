"""Storage of the regions while tables move: a copy takes room from its beginning, a deleted one until its end (I10)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from data_placement.migrations.migration import Migration
from domain.identifiers import RegionId
from domain.table import Table


@dataclass(frozen=True, slots=True)
class Storage:
    """How much regions can store, and what the catalog says that they do."""

    capacity_bytes: Mapping[RegionId, float] = field(default_factory=dict)
    """Of those that have a limit."""
    stored_bytes: Mapping[RegionId, int] = field(default_factory=dict)
    """Of all complete copies in the catalog, homes and replicas."""

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


def stored_bytes(tables: Iterable[Table]) -> dict[RegionId, int]:
    """Bytes of complete copies, by region."""
    stored: dict[RegionId, int] = {}
    for table in tables:
        for region in table.regions:
            stored[region] = stored.get(region, 0) + table.size_bytes
    return stored


def room(free: Mapping[RegionId, float], region: RegionId) -> float:
    """Bytes that are free there; infinity where there is no limit."""
    return free.get(region, math.inf)
