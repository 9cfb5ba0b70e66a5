"""The InferenceScheduler as a gRPC server, before any source of demand."""

from __future__ import annotations

from typing import TypeAlias

import grpc

from domain.clock import Clock
from domain.identifiers import ClusterId
from services.grpc_errors import InvalidArgument, Unavailable
from services.inference.demand import DemandSource, LendingCluster, NoDemand
from services.tiers.grpc_server import TierServer
from topmast.v1 import inference_scheduler_pb2 as messages
from topmast.v1 import inference_scheduler_pb2_grpc

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class InferenceSchedulerServicer(inference_scheduler_pb2_grpc.InferenceSchedulerServicer):
    """Answers with what the source says; UNAVAILABLE while that says nothing."""

    def __init__(self, source: DemandSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock

    async def GetDemand(self, request: messages.GetDemandRequest, context: Context) -> messages.GetDemandResponse:
        if request.machines < 1:
            raise InvalidArgument.of("machines", f"is {request.machines}; a cluster has at least one")
        about = LendingCluster(ClusterId(request.cluster), request.machines, request.lent, request.returning)
        try:
            demand = await self._source.demand(about, self._clock.now())
        except NoDemand as error:
            raise Unavailable(str(error)) from error
        return messages.GetDemandResponse(
            needed_machines=demand.needed_machines,
            lends_machines=demand.lends_machines,
            reclaim_within_s=demand.reclaim_within_s,
        )


def inference_server(source: DemandSource, clock: Clock) -> TierServer:
    """A server that answers for the source."""
    servicer = InferenceSchedulerServicer(source, clock)
    return TierServer(
        [messages.DESCRIPTOR.services_by_name["InferenceScheduler"]],
        lambda server: inference_scheduler_pb2_grpc.add_InferenceSchedulerServicer_to_server(servicer, server),
    )
