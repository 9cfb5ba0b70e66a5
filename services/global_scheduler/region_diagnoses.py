"""Why each region has no place for a waiting workload, and who holds there what it could use."""

from __future__ import annotations

from domain.diagnosis import Diagnosis, Reason
from domain.identifiers import ANY_GPU_MODEL, WorkloadId
from services.database.capacity_holders import CapacityHolder, load_holders, load_out_of_use
from services.database.connection import AnyConnection
from services.wire.diagnoses import diagnosis_to_proto
from topmast.v1 import workload_pb2

_FOR_WANT_OF_WHAT_IS_HELD = frozenset(
    {Reason.NO_ROOM, Reason.KNOWN_TO_FAIL, Reason.NO_ROOM_TOGETHER, Reason.HELD_FOR_OTHERS}
)
"""Where something else runs on what would do."""


async def region_diagnoses(
    connection: AnyConnection,
    diagnosis: Diagnosis,
    workload: WorkloadId,
    specification: workload_pb2.WorkloadSpecification,
) -> list[workload_pb2.RegionDiagnosis]:
    """One for each region that was asked, with the machines that are drained or down. Of other tenants' workloads it is said how many there are of each priority, and what
    they hold together."""
    found = diagnosis.by_region or (diagnosis,)
    full = [one.region for one in found if one.region is not None and one.reason in _FOR_WANT_OF_WHAT_IS_HELD]
    models = sorted({job.resources.gpu_model or ANY_GPU_MODEL for job in specification.jobs if job.resources.gpus})
    chosen = None if not models or ANY_GPU_MODEL in models else models
    holders = await load_holders(connection, workload, full, models=chosen, with_gpus=bool(models))
    out_of_use = await load_out_of_use(connection, full, models=chosen, with_gpus=bool(models))
    return [
        workload_pb2.RegionDiagnosis(
            diagnosis=diagnosis_to_proto(one),
            holders=[_holder_message(holder) for holder in holders if holder.region == one.region],
            out_of_use=[
                workload_pb2.OutOfUse(state=machines.state.value, machines=machines.machines, gpus=machines.gpus)
                for machines in out_of_use
                if machines.region == one.region
            ],
        )
        for one in found
    ]


def _holder_message(holder: CapacityHolder) -> workload_pb2.CapacityHolder:
    return workload_pb2.CapacityHolder(
        workload=holder.workload or "",
        name=holder.name,
        priority=holder.priority,
        workloads=holder.workloads,
        gpus=holder.gpus,
        cpus=holder.cpus,
    )
