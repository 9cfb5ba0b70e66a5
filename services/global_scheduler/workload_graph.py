"""The workloads that wait for each other, as clients get them."""

from __future__ import annotations

from domain.identifiers import WorkloadId
from services.database import dependency_store
from services.database.connection import AnyConnection
from services.grpc_errors import NotFound
from services.wire.workloads import state_to_proto
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import workload_pb2


async def graph_message(connection: AnyConnection, workload: WorkloadId) -> messages.WorkloadGraph:
    """All that is connected with this one. Raises NotFound."""
    workloads, complete = await dependency_store.graph_of(connection, workload)
    if not workloads:
        raise NotFound("workload", workload)
    return messages.WorkloadGraph(
        workloads=[
            workload_pb2.GraphWorkload(
                workload=one.workload,
                name=one.name,
                state=state_to_proto(one.state),
                after=map(str, one.after),
            )
            for one in workloads
        ],
        incomplete=not complete,
    )
