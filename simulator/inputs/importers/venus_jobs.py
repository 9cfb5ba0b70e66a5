"""`venus_jobs.csv`: converted jobs of Helios Venus, cut at 48 hours. It does not say whose they are: all are `venus`'s."""

from __future__ import annotations

from simulator.inputs.importers.importer import RenamedTrace

VENUS_JOBS = RenamedTrace(
    name="venus-jobs",
    title="converted Helios Venus jobs",
    header=("job_id", "gpus", "submit_s", "duration_s", "clipped_at_48h"),
    default_tenant="venus",
)
