"""Synthetic tables have MAST's statistics, and every workload can read its tables somewhere."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import RegionId
from domain.table import Table
from formats.trace import TraceRow
from simulator.inputs.tables import synthesize_tables
from tests.simulator.inputs.rows import many_rows, random_rows, row

REGIONS = tuple((RegionId(f"r{n}"), 100 * (n + 1)) for n in range(8))


def readers(rows: tuple[TraceRow, ...]) -> list[int]:
    return list(Counter(table for r in rows for table in r.tables).values())


def candidates(rows: tuple[TraceRow, ...], tables: tuple[Table, ...]) -> list[int]:
    """In how many regions each row finds all its tables."""
    held = {table.table: set(table.regions) for table in tables}
    return [len(set.intersection(*(held[table] for table in r.tables))) for r in rows]


def test_sharing_sizes_and_candidate_regions_are_those_of_mast() -> None:
    """§3: 3, 17 and 45 workloads share a partition; §3.4: 565 MB, 103 GB, 7.5 TB; §5.3: candidate regions."""
    rows, tables = synthesize_tables(random_rows(60_000), REGIONS, np.random.default_rng(1))
    assert len(tables) > 10_000
    assert np.percentile(readers(rows), [50, 90, 99]) == pytest.approx([3, 17, 45], rel=0.10)
    sizes = [table.size_bytes for table in tables]
    assert np.percentile(sizes, [50, 90, 99]) == pytest.approx([565e6, 103e9, 7.5e12], rel=0.15)
    counts = np.array(candidates(rows, tables))
    assert counts.min() >= 1
    assert 0.5 < (counts >= 2).mean() < 0.9
    assert (counts >= 4).mean() == pytest.approx(0.40, abs=0.02)


def test_popular_tables_have_more_copies_and_large_regions_more_homes() -> None:
    rows, tables = synthesize_tables(random_rows(20_000), REGIONS, np.random.default_rng(2))
    popularity = Counter(table for r in rows for table in r.tables)
    hot = [len(table.regions) for table in tables if popularity[table.table] >= 17]
    cold = [len(table.regions) for table in tables if popularity[table.table] <= 2]
    assert np.mean(hot) > np.mean(cold) + 1
    homes = Counter(str(table.home) for table in tables)
    assert homes["r7"] > homes["r3"] > homes["r0"] > 0


def test_a_row_that_is_bound_to_a_region_finds_its_tables_there() -> None:
    bound = tuple(row(f"w{n}", n, 1, 1, region=f"r{n % 8}") for n in range(2_000))
    rows, tables = synthesize_tables(bound, REGIONS, np.random.default_rng(3))
    held = {table.table: table.regions for table in tables}
    assert all(r.region in held[table] for r in rows for table in r.tables)
    assert sum(len(r.tables) for r in rows) > 2_000


def test_the_seed_decides() -> None:
    rows = random_rows(300)
    first = synthesize_tables(rows, REGIONS, np.random.default_rng(1))
    assert first == synthesize_tables(rows, REGIONS, np.random.default_rng(1))
    assert first != synthesize_tables(rows, REGIONS, np.random.default_rng(2))


def test_without_regions_there_can_be_no_tables() -> None:
    with pytest.raises(ValueError, match="no region"):
        synthesize_tables(random_rows(3), (), np.random.default_rng(1))
    assert synthesize_tables((), REGIONS, np.random.default_rng(1)) == ((), ())


@given(rows=many_rows(40), regions=st.integers(1, 6), seed=st.integers(0, 1000))
def test_never_leaves_a_workload_without_a_region_that_holds_its_tables(
    rows: tuple[TraceRow, ...], regions: int, seed: int
) -> None:
    made, tables = synthesize_tables(rows, REGIONS[:regions], np.random.default_rng(seed))
    names = {region for region, _ in REGIONS[:regions]}
    assert [r.workload_id for r in made] == [r.workload_id for r in rows]
    assert all(1 <= len(set(r.tables)) == len(r.tables) <= 3 for r in made)
    assert len({table.table for table in tables}) == len(tables)
    assert all(table.size_bytes >= 1 and set(table.regions) <= names for table in tables)
    assert {table for r in made for table in r.tables} == {table.table for table in tables}
    assert all(count >= 1 for count in candidates(made, tables))
