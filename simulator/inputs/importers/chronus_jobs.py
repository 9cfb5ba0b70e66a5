"""Job lists of the Chronus simulator: `num_gpu`, `submit_time` and `duration` in seconds. The VC is the tenant."""

from __future__ import annotations

from types import MappingProxyType

from simulator.inputs.importers.importer import RenamedTrace

CHRONUS_JOBS = RenamedTrace(
    name="chronus",
    title="jobs of the Chronus simulator",
    header=("job_id", "num_gpu", "submit_time", "duration", "vc"),
    names=MappingProxyType(
        {"tenant": "vc", "submit_s": "submit_time", "duration_s": "duration", "gpus": "num_gpu", "model": "model_name"}
    ),
)
