"""Regions of a trace: its own, none, or drawn."""

from __future__ import annotations

import numpy as np
import pytest

from domain.identifiers import RegionId
from simulator.inputs.regions import anywhere, assign_regions, region_gpus_for_load, regions_of_trace
from tests.simulator.inputs.rows import random_rows, row

REGIONS = ((RegionId("large"), 300), (RegionId("small"), 100), (RegionId("tiny"), 8))


def test_a_trace_knows_its_regions_and_can_forget_them() -> None:
    rows = (row("a", 0, 1, 1, region="y"), row("b", 0, 1, 1), row("c", 0, 1, 1, region="x"))
    assert regions_of_trace(rows) == ("x", "y")
    assert regions_of_trace(anywhere(rows)) == ()


def test_regions_are_drawn_by_their_size_and_the_seed() -> None:
    rows = tuple(row(f"w{n}", n, 1, 1) for n in range(20_000))
    assigned = assign_regions(rows, REGIONS, np.random.default_rng(3))
    share = {name: sum(r.region == name for r in assigned) / len(rows) for name, _ in REGIONS}
    assert share == pytest.approx({"large": 300 / 408, "small": 100 / 408, "tiny": 8 / 408}, abs=0.01)
    assert assigned == assign_regions(rows, REGIONS, np.random.default_rng(3))
    assert assigned != assign_regions(rows, REGIONS, np.random.default_rng(4))


def test_a_gang_goes_only_where_it_fits_and_a_row_with_a_region_stays() -> None:
    rows = random_rows(500)
    assigned = assign_regions(rows, REGIONS, np.random.default_rng(1))
    assert {r.region for r in assigned if r.gpus > 8} == {"large", "small"}
    assert {r.region for r in assigned} == {"large", "small", "tiny"}
    (huge,) = assign_regions((row("huge", 0, 1, 500),), REGIONS, np.random.default_rng(1))
    assert huge.region == "large"
    (bound,) = assign_regions((row("bound", 0, 1, 1, region="tiny"),), REGIONS, np.random.default_rng(1))
    assert bound.region == "tiny"
    with pytest.raises(ValueError, match="no region with a GPU"):
        assign_regions(rows, (), np.random.default_rng(1))


def test_sizes_for_a_load() -> None:
    rows = (row("a", 0, 100, 8, region="x"), row("b", 100, 100, 4, region="x"), row("c", 5, 10, 1, region="y"))
    assert region_gpus_for_load(rows, 1.0) == (("x", 12), ("y", 10))
    assert region_gpus_for_load(rows, 0.5) == (("x", 24), ("y", 20))
    assert region_gpus_for_load(rows, 1.0, gpus_per_machine=8) == (("x", 16), ("y", 16))
    with pytest.raises(ValueError, match="load must be more than 0"):
        region_gpus_for_load(rows, 0.0)
