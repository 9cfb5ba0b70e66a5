"""What workloads read: tables of the data warehouse, and in which regions they are."""

from __future__ import annotations

from dataclasses import dataclass

from domain.identifiers import RegionId, TableId

NO_NAMESPACE = ""
"""Of tables whose name has no dot."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the data warehouse: new data appears in its home region; replicas may be behind (MAST §3.1)."""

    table: TableId
    size_bytes: int
    home: RegionId
    replicas: tuple[RegionId, ...] = ()
    lags_s: tuple[tuple[RegionId, float], ...] = ()
    """How far replicas are behind: the newest partition of the home is so much younger than the last one up to which
    the replica has all; infinite where nobody knows. Those that are not named have everything."""
    newest_held: tuple[tuple[RegionId, int], ...] = ()
    """Regions that hold no copy of the table, but so many of its newest partitions without a gap (MAST §3.5)."""

    @property
    def regions(self) -> tuple[RegionId, ...]:
        """All regions that hold a copy, also one that is behind, home first."""
        return (self.home, *(region for region in self.replicas if region != self.home))

    @property
    def regions_up_to_date(self) -> tuple[RegionId, ...]:
        """Those whose copy has everything, home first: only they can be copied from, or become the home as they are."""
        return self.regions_within(0.0)

    def holds_newest(self, region: RegionId, newest: int) -> bool:
        """Whether a region that holds no copy of the table holds so many of its newest partitions."""
        return dict(self.newest_held).get(region, 0) >= newest

    def is_copied_in_part(self, newest: int | None) -> bool:
        """Whether a copy of so many of the newest partitions (None: all) may be of less than the whole table."""
        return newest is not None or bool(self.lags_s) or bool(self.newest_held)

    def regions_within(self, max_age_s: float) -> tuple[RegionId, ...]:
        """The regions whose copy is behind by at most so much, home first."""
        lags = dict(self.lags_s)
        return tuple(region for region in self.regions if region == self.home or lags.get(region, 0.0) <= max_age_s)


def namespace_of(table: TableId) -> str:
    """The part of the name before the first dot; NO_NAMESPACE where there is none."""
    namespace, dot, _ = table.partition(".")
    return namespace if dot else NO_NAMESPACE
