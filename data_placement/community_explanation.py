"""What a community of tables is, in words and figures: its largest tables, the jobs that bind it, and where it is.

Rule: a community is called after the namespace of its largest table, or after that table where it has no namespace; of
several with one name the second is called `name #2`, and so on, in the order of their numbers. The tables that the same
jobs read are what a search moves together (MAST §3.4), so this says of a table why it goes where others go.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from domain.identifiers import TableId
from domain.table import namespace_of
from domain.warehouse import Floats, Indices, Integers, Warehouse

LARGEST_TABLES = 5
STRONGEST_JOBS = 3
_NAMED_REGIONS = 3
"""In a sentence"""


@dataclass(frozen=True, slots=True)
class RegionShare:
    """Which part of a community's bytes has its home in a region."""

    region: str
    share: float


@dataclass(frozen=True, slots=True)
class Community:
    """Tables that the same jobs read."""

    name: str
    tables: int
    bytes: int
    jobs: int
    """Those that read two of its tables or more: they bind it."""
    gpu_hours: float
    """Of these jobs in a day"""
    largest_tables: tuple[str, ...]
    namespaces: tuple[str, ...]
    """Of its largest tables, by name"""
    strongest_jobs: tuple[str, ...]
    """Of those that bind it, the ones with the most GPU hours"""
    before: tuple[RegionShare, ...]
    """By homes, the largest share first; regions without any are left out"""
    after: tuple[RegionShare, ...]

    @property
    def sentence(self) -> str:
        """All of that for people."""
        bound = f"{self.jobs:,} jobs bind it" if self.jobs != 1 else "1 job binds it"
        strongest = f" ({', '.join(self.strongest_jobs)})" if self.strongest_jobs else ""
        where = f"it is in {_places(self.before)}"
        if self.after != self.before:
            where = f"it goes from {_places(self.before)} to {_places(self.after)}"
        return (
            f"community {self.name}: {self.tables:,} tables of {self.bytes:.4g} bytes, the largest {self.largest_tables[0]}; "
            f"{bound}{strongest}; {where}"
        )


@dataclass(frozen=True, slots=True)
class Communities:
    """All communities of a warehouse, the one with the most tables first."""

    of_table: Indices = field(default_factory=lambda: np.zeros(0, np.int32))
    """(T,) the place of each table's community; -1: it has none. Empty where there are none at all."""
    described: tuple[Community, ...] = ()

    def of(self, table: int) -> Community | None:
        """The community of a table by its place."""
        number = int(self.of_table[table]) if len(self.of_table) else -1
        return None if number < 0 else self.described[number]

    def clause(self, table: int) -> str:
        """The end of a sentence about a table: with whom it belongs together, and where most of these are to be; may be empty."""
        community = self.of(table)
        if community is None or community.tables == 1:
            return ""
        most = community.after[0]
        return (
            f"; one of the {community.tables:,} tables of community {community.name}, "
            f"of which {most.share:.0%} will be in {most.region}"
        )


def describe_communities(warehouse: Warehouse, label: Indices, after: Indices | None = None) -> Communities:
    """The communities by the labels of `communities_of`; `after`: (T,) the homes by a plan, None where there is none."""
    count = int(label.max(initial=-1)) + 1
    if count == 0:
        return Communities()
    tables, regions = warehouse.tables, warehouse.regions
    sizes = tables.size_bytes
    members = np.flatnonzero(label >= 0)
    members = members[np.lexsort((members, -sizes[members], label[members]))]
    start = np.searchsorted(label[members], np.arange(count + 1))
    bound = _bound_jobs(warehouse, label, count)
    stored_before = _stored(label, tables.home, sizes, count, regions.count)
    stored_after = stored_before if after is None else _stored(label, after, sizes, count, regions.count)
    described: list[Community] = []
    named: dict[str, int] = {}
    for number in range(count):
        own = members[start[number] : start[number + 1]]
        largest = tuple([str(tables.names[int(table)]) for table in own[:LARGEST_TABLES]])
        name = namespace_of(TableId(largest[0])) or largest[0]
        named[name] = named.get(name, 0) + 1
        jobs = bound.jobs[bound.start[number] : bound.start[number + 1]]
        described.append(
            Community(
                name if named[name] == 1 else f"{name} #{named[name]}",
                len(own),
                int(sizes[own].sum()),
                len(jobs),
                float(warehouse.jobs.gpu_hours[jobs].sum()),
                largest,
                tuple(sorted({space for table in largest if (space := namespace_of(TableId(table)))})),
                tuple([str(warehouse.jobs.names[int(job)]) for job in jobs[:STRONGEST_JOBS]]),
                _shares(stored_before[number], regions.names),
                _shares(stored_after[number], regions.names),
            )
        )
    return Communities(label, tuple(described))


@dataclass(frozen=True, slots=True)
class _BoundJobs:
    """The jobs that bind each community: those of community c are `jobs[start[c] : start[c + 1]]`, the strongest first."""

    start: Integers
    jobs: Integers


def _bound_jobs(warehouse: Warehouse, label: Indices, count: int) -> _BoundJobs:
    jobs = warehouse.jobs
    job_of_pair = np.repeat(np.arange(jobs.count, dtype=np.int64), np.diff(jobs.table_start))
    community = label[jobs.tables]
    together, reads = np.unique((job_of_pair * count + community)[community >= 0], return_counts=True)
    together = together[reads >= 2]
    job, community = together // count, together % count
    order = np.lexsort((job, -jobs.gpu_hours[job], community))
    return _BoundJobs(np.searchsorted(community[order], np.arange(count + 1)), job[order])


def _stored(label: Indices, home: Indices, sizes: Integers, count: int, regions: int) -> Floats:
    """(communities, regions) bytes by homes; a table that is empty counts as a byte, for it is somewhere too."""
    members = np.flatnonzero(label >= 0)
    cells = label[members].astype(np.int64) * regions + home[members]
    stored: Floats = np.bincount(
        cells, weights=np.maximum(sizes[members], 1).astype(np.float64), minlength=count * regions
    ).astype(np.float64)
    return stored.reshape(count, regions)


def _shares(stored: Floats, names: tuple[str, ...]) -> tuple[RegionShare, ...]:
    whole = float(stored.sum())
    order = np.lexsort((np.arange(len(names)), -stored)).tolist()
    return tuple([RegionShare(names[place], float(stored[place]) / whole) for place in order if stored[place] > 0.0])


def _places(shares: tuple[RegionShare, ...]) -> str:
    listed = [f"{one.region} ({one.share:.0%})" for one in shares[:_NAMED_REGIONS]]
    further = len(shares) - len(listed)
    return ", ".join(listed) + (
        f" and {further} more regions" if further > 1 else " and 1 more region" if further else ""
    )
