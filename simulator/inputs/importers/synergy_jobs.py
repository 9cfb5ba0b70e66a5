"""Job lists of the Synergy simulator (OSDI 2022, §5.1). All jobs are one tenant's.

The duration is that with the fair share of CPUs and memory, as everywhere here. What a job could use more of
(`cpu_demand`, `mem_demand_gb`) is its sensitivity, not a request, and is left out.
"""

from __future__ import annotations

from types import MappingProxyType

from simulator.inputs.importers.importer import RenamedTrace

SYNERGY_JOBS = RenamedTrace(
    name="synergy",
    title="jobs of the Synergy simulator",
    header=("job_id", "arrival", "gpus", "duration_fair_s", "cpu_demand", "mem_demand_gb"),
    names=MappingProxyType({"submit_s": "arrival", "duration_s": "duration_fair_s"}),
    default_tenant="synergy",
)
