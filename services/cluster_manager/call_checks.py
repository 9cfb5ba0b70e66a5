"""Keeps callers who are limited to some tenants from the logs and the tasks of others: these are answered as what is not there."""

from __future__ import annotations

from google.protobuf.message import Message

from domain.identifiers import WorkloadId
from services.database import ownership_store
from services.database.engine import Database
from services.grpc_errors import CallRefused, NotFound
from services.security.principal import Principal
from topmast.v1 import cluster_manager_pb2

_PATIENCE_REAL_S = 5.0


class ClusterCallChecks:
    """What a cluster manager asks of calls beside the role of who makes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def check(self, method: str, request: Message, principal: Principal) -> None:
        """Raises NotFound for a workload that is not of the caller's tenants, whether there is such or not."""
        if principal.tenants is None:
            return
        match request:
            case cluster_manager_pb2.ReadLogsRequest():
                name = request.workload
            case cluster_manager_pb2.OpenSessionRequest():
                name = request.opening.workload
            case _:
                return
        workload, tenants = WorkloadId(name.replace("\0", "")), principal.tenants
        own = await self._database.run(
            lambda connection: ownership_store.owned_workloads(connection, [workload], tenants),
            give_up_after_s=_PATIENCE_REAL_S,
        )
        if workload not in own:
            raise NotFound("workload", name)

    async def ended(
        self, method: str, request: Message | None, principal: Principal, refusal: CallRefused | None
    ) -> None:
        """Nothing is kept of it."""
