"""`itp_jobs.csv`: jobs of Microsoft's ITP. Its seven separate clusters, on one clock, serve as regions and as tenants.

A row's region is the only one where it may run. For a scheduler that chooses the region itself, take the regions
away again (`simulator.inputs.regions.anywhere`); the tenant still says where it came from.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from domain.identifiers import RegionId
from formats.trace import TraceRow
from simulator.inputs.importers.importer import RenamedTrace


def _in_its_cluster(row: TraceRow) -> TraceRow:
    return replace(row, region=RegionId(row.tenant))


ITP_JOBS = RenamedTrace(
    name="itp-jobs",
    title="converted ITP jobs, whose clusters are regions",
    header=("job_id", "cluster", "gpus", "submit_s", "duration_s"),
    names=MappingProxyType({"tenant": "cluster"}),
    adapt=_in_its_cluster,
)
