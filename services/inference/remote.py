"""An inference side that is asked by gRPC (protos/topmast/v1/inference_scheduler.proto)."""

from __future__ import annotations

import grpc

from domain.inference import InferenceDemand
from services.inference.demand import LendingCluster, NoDemand
from services.tiers.tier_channel import tier_channel
from topmast.v1 import inference_scheduler_pb2, inference_scheduler_pb2_grpc

PATIENCE_REAL_S = 5.0


class RemoteDemand:
    """The InferenceScheduler that answers at an address; one that does not answer within the patience says nothing."""

    def __init__(self, address: str, patience_real_s: float = PATIENCE_REAL_S) -> None:
        self._address = address
        self._patience_real_s = patience_real_s
        self._channel: grpc.aio.Channel | None = None

    async def demand(self, about: LendingCluster, now: float) -> InferenceDemand:
        if self._channel is None:
            # It need not be a program of ours: what tiers trust each other by is not for it.
            self._channel = tier_channel(self._address, with_token=False)
        stub = inference_scheduler_pb2_grpc.InferenceSchedulerStub(self._channel)
        request = inference_scheduler_pb2.GetDemandRequest(
            cluster=about.cluster, machines=about.machines, lent=about.lent, returning=about.returning
        )
        try:
            answer = await stub.GetDemand(request, timeout=self._patience_real_s)
        except grpc.aio.AioRpcError as error:
            # What it says is stored, and the database takes no NUL.
            what = f"{error.code().name}: {error.details()}".replace("\0", "\N{REPLACEMENT CHARACTER}")
            raise NoDemand(f"the inference scheduler at {self._address} does not answer ({what})") from error
        return InferenceDemand(
            answer.needed_machines,
            answer.lends_machines if answer.HasField("lends_machines") else None,
            answer.reclaim_within_s if answer.HasField("reclaim_within_s") else None,
        )

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
