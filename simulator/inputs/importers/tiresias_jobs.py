"""`tiresias_60_jobs.csv`: the sample of the Tiresias simulator. All jobs are one tenant's."""

from __future__ import annotations

from simulator.inputs.importers.importer import RenamedTrace

TIRESIAS_JOBS = RenamedTrace(
    name="tiresias",
    title="jobs of the Tiresias simulator",
    header=("job_id", "gpus", "submit_s", "duration_s", "model", "iterations"),
    default_tenant="tiresias",
)
