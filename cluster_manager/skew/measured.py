"""What an attempt is a sample of, for learning PACKLIMIT: the one place that says it, for the service and for simulations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cluster_manager.skew.spread import is_spread
from domain.identifiers import GpuModel, MachineId, TenantId
from domain.iteration_times import RanOn
from domain.workload import JobSpecification


def ran_on(
    tenant: TenantId,
    name: str,
    job: JobSpecification,
    machines: Sequence[MachineId],
    models: Mapping[MachineId, GpuModel],
    most_gpus: Mapping[MachineId, int],
) -> RanOn | None:
    """What the job's times on these machines, one for each task, are times of; `most_gpus` as from `most_gpus_of_machines`.

    None where they belong to nothing: it has one task or no GPUs, runs in another size, or on machines that are gone or of
    several kinds.
    """
    if job.tasks < 2 or job.resources.gpus == 0 or len(machines) != job.tasks:
        return None
    if not all(machine in models for machine in machines):
        return None
    kinds = {(models[machine], most_gpus[machine]) for machine in machines}
    spread = is_spread(job.resources.gpus, machines, most_gpus)
    if len(kinds) != 1 or spread is None:
        return None
    ((gpu_model, _),) = kinds
    return RanOn(tenant, name, job.name, job.tasks, job.resources.gpus, gpu_model, spread)
