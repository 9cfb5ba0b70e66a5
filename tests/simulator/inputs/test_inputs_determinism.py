"""Regions, tables, tenants, slices and scales are the same bytes in every process (I12)."""

from __future__ import annotations

from tests.house.determinism import assert_same_output

SNIPPET = """
import sys
import numpy as np
from domain.identifiers import RegionId
from formats.trace import write_trace_rows
from simulator.inputs.fleets import FleetSource, fleet_from, gpus_of_regions
from simulator.inputs.regions import assign_regions
from simulator.inputs.scaling import Scale, scale_rows
from simulator.inputs.slicing import Slice, slice_rows
from simulator.inputs.summary import summarise
from simulator.inputs.tables import synthesize_tables
from simulator.inputs.tenants import tenants_of_trace
from tests.simulator.inputs.rows import random_rows

rng = np.random.default_rng(5)
fleet = fleet_from(FleetSource(gpus=256, regions=4))
rows = scale_rows(random_rows(300), Scale(copies=2, jitter_s=50.0), rng)
rows = slice_rows(rows, Slice(tenants=("t1", "t2", "t3"), share=0.5), rng)
rows = assign_regions(rows, gpus_of_regions(fleet), rng)
rows, tables = synthesize_tables(rows, gpus_of_regions(fleet), rng)
write_trace_rows(sys.stdout, rows)
print(tables)
print(tenants_of_trace(rows, 256))
print(summarise(rows))
"""


def test_inputs_do_not_depend_on_the_process() -> None:
    output = assert_same_output(SNIPPET)
    assert "table-000000" in output
    assert "region-4" in output
