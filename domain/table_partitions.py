"""The partitions of one table, and which of them regions have that hold no complete copy of it (MAST §3.5)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from domain.identifiers import RegionId


@dataclass(frozen=True, slots=True)
class TablePartition:
    """An immutable part of a table."""

    name: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TablePartitions:
    """What a table consists of, and what is known of copies that lack some of it."""

    newest_first: tuple[TablePartition, ...]
    held: Mapping[RegionId, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    """By region: of copies that are behind, and of those that hold partitions alone, what they have. A region that is not
    named has everything or nothing, or nobody knows what."""

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.newest_first)

    def newest(self, count: int | None) -> tuple[TablePartition, ...]:
        """So many of the newest; None: all."""
        return self.newest_first[:count]

    def missing(self, region: RegionId, count: int | None) -> tuple[TablePartition, ...]:
        """Those of so many of the newest that the region lacks."""
        held = self.held.get(region, frozenset())
        return tuple(partition for partition in self.newest(count) if partition.name not in held)

    def missing_bytes(self, region: RegionId, count: int | None) -> int:
        return sum(partition.size_bytes for partition in self.missing(region, count))

    def held_bytes(self, region: RegionId) -> int:
        held = self.held.get(region, frozenset())
        return sum(partition.size_bytes for partition in self.newest_first if partition.name in held)

    def newest_held(self, region: RegionId) -> int:
        """How many of the newest the region has without a gap."""
        held = self.held.get(region, frozenset())
        count = 0
        for partition in self.newest_first:
            if partition.name not in held:
                break
            count += 1
        return count

    def newest_of_share(self, share: float) -> int:
        """The least number of the newest that are at least this part of all bytes."""
        needed, count = share * self.size_bytes * (1.0 - _ROUNDING), 0
        for partition in self.newest_first:
            if needed <= 0.0:
                break
            needed -= partition.size_bytes
            count += 1
        return max(1, count)


def with_partitions(partitions: TablePartitions, region: RegionId, names: Iterable[str]) -> TablePartitions:
    """The same when the region has these too."""
    held = partitions.held.get(region, frozenset()) | frozenset(names)
    return replace(partitions, held=MappingProxyType({**partitions.held, region: held}))


def without_regions(partitions: TablePartitions, regions: Collection[RegionId | None]) -> TablePartitions:
    """The same when these regions have everything, or nothing."""
    held = {region: names for region, names in partitions.held.items() if region not in regions}
    return replace(partitions, held=MappingProxyType(held))


_ROUNDING = 1e-9
"""Of a share that was itself made by dividing the bytes of partitions."""
