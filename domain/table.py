"""What workloads read: tables of the data warehouse, and in which regions they are."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import RegionId, TableId


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the data warehouse: new data appears in its home region; replicas may be behind (MAST §3.1)."""

    table: TableId
    size_bytes: int
    home: RegionId
    replicas: tuple[RegionId, ...] = ()

    @property
    def regions(self) -> tuple[RegionId, ...]:
        """All regions that hold a complete copy, home first."""
        return (self.home, *(region for region in self.replicas if region != self.home))
