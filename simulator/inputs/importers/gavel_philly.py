"""`gavel_philly_vc.csv`: Philly jobs with Gavel's job types.

The duration is the real one, `philly_duration_s`. The file's `duration_s` is of a synthetic number of steps, and is
not known for every job.
"""

from __future__ import annotations

from types import MappingProxyType

from simulator.inputs.importers.importer import RenamedTrace

GAVEL_PHILLY = RenamedTrace(
    name="gavel-philly",
    title="Philly jobs with Gavel's job types",
    header=("job_id", "vc", "job_type", "gpus", "submit_s", "philly_duration_s"),
    names=MappingProxyType({"tenant": "vc", "duration_s": "philly_duration_s", "model": "job_type"}),
)
