"""What cannot be simulated is refused with the field, before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_placement.catalog import Catalog
from domain.identifiers import JobName, RegionId, TableId, TenantId, WorkloadId
from domain.resources import TaskResources
from domain.table import Table
from domain.workload import Emulated, JobSpecification, TableInput, Workload, WorkloadSpecification
from formats.problems import FormatError
from simulator.engine.simulation_input import SimulationInput, check_input
from tests.simulator.engine.checked_run import one_region, row, unlimited

READS_CLICKS = replace(row("a", 0.0, 10.0), tables=(TableId("clicks"),))


def test_tables_that_do_not_exist_are_refused_as_by_a_service() -> None:
    job = JobSpecification(JobName("main"), 1, TaskResources(gpus=1), Emulated(10.0))
    specification = WorkloadSpecification("w", TenantId("t"), (job,), tables=(TableInput(TableId("clicks")),))
    given = SimulationInput("trace.csv", [READS_CLICKS], one_region(1, 1), unlimited([READS_CLICKS]))
    described = replace(given, rows=(), workloads=[Workload(WorkloadId("w"), specification, 0.0)])
    for refused in (given, described):
        with pytest.raises(FormatError, match=r"tables: table clicks does not exist; add it to the tables"):
            check_input(refused, refused.arrivals())
        with_table = replace(refused, catalog=Catalog([Table(TableId("clicks"), 1, RegionId("r"))]))
        check_input(with_table, with_table.arrivals())
