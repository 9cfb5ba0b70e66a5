"""Synthetic tables for a trace: which workloads share what, how large, where; from a seed (MAST §3, Figure 3; §3.4–3.5, §5.3).

No public trace says which data a job reads. Published by MAST, and met here on a trace that is large enough: a table's
partition is read by 3, 17 and 45 workloads at P50, P90 and P99; sizes are 565 MB, 103 GB and 7.5 TB; the majority of
workloads can run in two or more regions, about 40 % in four or more; hot tables are replicated widely. A table here is
what a workload reads of it, a partition. The rest is ours: how many tables a workload reads (one to three), that those
it reads together have one home and as many copies, and that size has nothing to do with popularity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np
from numpy.typing import NDArray

from domain.identifiers import RegionId, TableId
from domain.table import Table
from formats.trace import TraceRow
from simulator.published_statistics import MAST_TABLE_BYTES, MAST_TABLE_READERS
from simulator.workload_generator import values_at_quantiles

Integers = NDArray[np.int64]

COPIES_SHARES = ((4, 0.40), (3, 0.15), (2, 0.20), (1, 0.25))
"""Candidate regions of a workload (4: four or more) and the share that has so many. Where there are fewer regions,
those who would have more have all."""
TABLES_SHARES = ((1, 0.60), (2, 0.25), (3, 0.15))
"""Tables that a workload reads."""
MORE_COPIES = 0.5
"""Of the tables with four copies or more, the share that has at least one more, and of those again."""
GREATEST_BYTES = 10**15
_HOTNESS_NOISE = 1.0
"""Standard deviation, in logarithms of readers: popular tables have more copies, as a rule."""


@dataclass(frozen=True, slots=True)
class _RowGroup:
    """Workloads that read tables of one home with so many copies: the rows' places, once for each table they read."""

    home: int
    copies: int
    workloads: int
    reads: Integers


def synthesize_tables(
    rows: Sequence[TraceRow], regions: Sequence[tuple[RegionId, int]], rng: np.random.Generator
) -> tuple[tuple[TraceRow, ...], tuple[Table, ...]]:
    """The rows with tables to read, and the tables; the same seed gives the same ones.

    `regions` are names and GPUs; homes are drawn with the GPUs as weights. What a row read before is replaced. A row
    that is bound to a region finds copies of its tables there, so that it can run at all. Raises ValueError when there
    is no region.
    """
    if not regions:
        raise ValueError("there is no region where tables could be")
    if not rows:
        return (), ()
    groups = _groups(len(rows), regions, rng)
    readers = _readers(sum(len(group.reads) for group in groups), rng)
    shares = _deal(groups, readers)
    sizes = np.clip(values_at_quantiles(MAST_TABLE_BYTES, rng.standard_normal(len(shares))), 1, GREATEST_BYTES)
    extra = rng.geometric(1 - MORE_COPIES, len(shares)) - 1
    orders = [_from(home, len(regions), rng) for home in range(len(regions))]
    read_by: list[list[TableId]] = [[] for _ in rows]
    tables: list[Table] = []
    for number, (group, places) in enumerate(shares):
        name = TableId(f"table-{number:06d}")
        copies = group.copies + (int(extra[number]) if group.copies >= COPIES_SHARES[0][0] else 0)
        held = dict.fromkeys(regions[place][0] for place in orders[group.home][:copies])
        for place in places:
            read_by[place].append(name)
            region = rows[place].region
            if region is not None:
                held.setdefault(region)
        home, *replicas = held
        tables.append(Table(name, int(sizes[number]), home, tuple(replicas)))
    return tuple(replace(row, tables=tuple(names)) for row, names in zip(rows, read_by, strict=True)), tuple(tables)


def _groups(count: int, regions: Sequence[tuple[RegionId, int]], rng: np.random.Generator) -> list[_RowGroup]:
    """Which workloads read of which home and with how many copies; most copies first."""
    weights = np.array([max(gpus, 0) for _, gpus in regions], dtype=np.float64)
    if weights.sum() <= 0:
        weights = np.ones(len(regions))
    home = rng.choice(len(regions), size=count, p=weights / weights.sum())
    copies = np.minimum(_drawn(COPIES_SHARES, count, rng), len(regions))
    tables = _drawn(TABLES_SHARES, count, rng)
    groups = []
    for wanted in sorted(set(copies.tolist()), reverse=True):
        for region in range(len(regions)):
            members = np.flatnonzero((copies == wanted) & (home == region))
            if not len(members):
                continue
            # One round after the other, so that hardly a workload meets the same table twice.
            rounds = [rng.permutation(members[tables[members] > turn]) for turn in range(TABLES_SHARES[-1][0])]
            groups.append(_RowGroup(region, int(wanted), len(members), np.concatenate(rounds)))
    return groups


def _readers(reads: int, rng: np.random.Generator) -> list[int]:
    """How many workloads read each table, until all reads are given out; the popular ones first, as a rule."""
    drawn: list[int] = []
    given = 0
    while given < reads:
        values = values_at_quantiles(MAST_TABLE_READERS, rng.standard_normal(1024))
        for value in np.maximum(np.rint(values), 1).astype(np.int64).tolist():
            if given >= reads:
                break
            drawn.append(value)
            given += value
    noise = rng.normal(0.0, _HOTNESS_NOISE, len(drawn))
    hotness = np.log(np.array(drawn, dtype=np.float64)) + noise
    return [drawn[place] for place in np.argsort(-hotness, kind="stable").tolist()]


def _deal(groups: Sequence[_RowGroup], readers: Sequence[int]) -> list[tuple[_RowGroup, list[int]]]:
    """The tables, each with its group and the rows that read it, none twice.

    Groups with most copies come first and take the most popular tables. Among those with as many copies a table goes
    to the one with most reads left.
    """
    shares: list[tuple[_RowGroup, list[int]]] = []
    wanted = iter(readers)
    for copies in dict.fromkeys(group.copies for group in groups):
        heap = [(-len(group.reads), place, 0) for place, group in enumerate(groups) if group.copies == copies]
        heapify(heap)
        while heap:
            left, place, start = heappop(heap)
            group = groups[place]
            # The last of all may be missing, when others could not be as popular as they were drawn.
            take = min(next(wanted, group.workloads), group.workloads, -left)
            chosen = group.reads[start : start + take].tolist()
            shares.append((group, list(dict.fromkeys(chosen))))
            if take < -left:
                heappush(heap, (left + take, place, start + take))
    return shares


def _from(home: int, count: int, rng: np.random.Generator) -> list[int]:
    """The regions in which a table of this home has copies, in order: home first, the others as drawn.

    The order is the home's own, so that the regions of tables that are read together are contained in each other.
    """
    others = [place for place in range(count) if place != home]
    return [home, *(others[place] for place in rng.permutation(len(others)).tolist())]


def _drawn(shares: Sequence[tuple[int, float]], count: int, rng: np.random.Generator) -> Integers:
    values = np.array([value for value, _ in shares], dtype=np.int64)
    drawn: Integers = values[rng.choice(len(shares), size=count, p=[share for _, share in shares])]
    return drawn
