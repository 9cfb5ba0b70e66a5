"""`pai_v2020_tasks.csv`: a converted sample of Alibaba PAI's tasks. All are `pai`'s; the role stands for the model."""

from __future__ import annotations

from types import MappingProxyType

from simulator.inputs.importers.importer import RenamedTrace

PAI_TASKS = RenamedTrace(
    name="pai-tasks",
    title="converted Alibaba PAI tasks",
    header=("task_id", "role", "gpus", "submit_s", "duration_s"),
    names=MappingProxyType({"model": "role"}),
    default_tenant="pai",
)
