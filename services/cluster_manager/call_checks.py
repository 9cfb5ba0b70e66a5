"""Keeps callers who are limited to some tenants from the logs and the tasks of others: these are answered as what is not there.

What callers who are not limited do in the tasks of tenants (shells, commands, ports) is written down as it begins.
"""

from __future__ import annotations

from google.protobuf.message import Message

from domain.identifiers import WorkloadId
from services.database import ownership_store
from services.database.engine import Database
from services.grpc_errors import CallRefused, NotFound
from services.security.audit import begin_audit, present_audit
from services.security.call_records import CallRecords
from services.security.principal import Principal
from topmast.v1 import cluster_manager_pb2

_PATIENCE_REAL_S = 5.0
_OPEN_SESSION = "/topmast.v1.ClusterManager/OpenSession"


class ClusterCallChecks:
    """What a cluster manager asks of calls beside the role of who makes them."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._records = CallRecords(database)

    async def check(self, method: str, request: Message, principal: Principal) -> None:
        """Raises NotFound for a workload that is not of the caller's tenants, whether there is such or not."""
        if principal.tenants is None:
            if isinstance(request, cluster_manager_pb2.OpenSessionRequest):
                await self._records.begun(begin_audit(method, request, principal, [request.opening.workload]))
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
        """Records what was refused of it; that it began is recorded already."""
        call = present_audit()
        if call is None and refusal is not None and method == _OPEN_SESSION and principal.tenants is None:
            call = begin_audit(method, None, principal, ())
        if call is not None:
            await self._records.ended(call, principal, refusal)
