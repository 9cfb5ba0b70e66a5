"""`philly_jobs.csv`: the converted Philly jobs. A virtual cluster is a tenant."""

from __future__ import annotations

from types import MappingProxyType

from simulator.inputs.importers.importer import RenamedTrace

PHILLY_JOBS = RenamedTrace(
    name="philly-jobs",
    title="converted Philly jobs",
    header=("job_id", "virtual_cluster", "gpus", "submit_s", "duration_s"),
    names=MappingProxyType({"tenant": "virtual_cluster"}),
)
