"""What operators ask of the fleet and of tenants, for asyncio: calls are awaited. fleet_operations.py is generated from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from typing import Unpack

from topmast.async_access import AsyncAccess
from topmast.async_connection import AsyncConnection
from topmast.async_fleet_upload import AsyncFleetUpload
from topmast.capacity import FleetCapacity, capacities_from_proto
from topmast.drains import (
    Drained,
    Undrained,
    drain_request,
    drained_from_proto,
    undrain_request,
    undrained_from_proto,
)
from topmast.dry_run import DryRunChanges, changes_from_proto
from topmast.fleet_parts import LARGEST_SINGLE_BYTES, FleetUploadProgress
from topmast.fleets import AppliedFleet, Fleet, Tenant, apply_request, tenants_to_proto
from topmast.losses import DeclaredLost, declared_from_proto
from topmast.machines import (
    FleetMachine,
    MachineFilter,
    MachinePage,
    MachinePlan,
    list_machines_request,
    machine_page_from_proto,
    machine_plans_from_proto,
)
from topmast.messages import message_of, refused, shown
from topmast.requests import LARGEST_PAGE
from topmast.tenant_use import (
    TenantPage,
    TenantUse,
    UsageFilter,
    UsagePage,
    UsageRow,
    tenant_page_from_proto,
    usage_page_from_proto,
    usage_request,
)
from topmast.v1 import (
    fleet_pb2,
    fleet_state_pb2,
    global_scheduler_pb2,
    global_scheduler_pb2_grpc,
    machine_assignment_pb2,
    tenant_use_pb2,
)


class AsyncFleetOperations(ABC):
    """Part of a client: the fleet, its machines, tenants and what they used."""

    address: str
    _connection: AsyncConnection
    _peer: str

    @property
    @abstractmethod
    def _scheduler(self) -> global_scheduler_pb2_grpc.GlobalSchedulerAsyncStub: ...

    @property
    def access(self) -> AsyncAccess:
        """Who is calling, the tokens of the service, and its audit log."""
        return AsyncAccess(self._connection, self.address, self._peer)

    async def apply_fleet(
        self,
        fleet: Fleet | fleet_pb2.Fleet,
        tenants: Iterable[Tenant | fleet_pb2.Tenant] | None = None,
        *,
        told: Callable[[FleetUploadProgress], None] | None = None,
    ) -> AppliedFleet:
        """Replaces the fleet, and all tenants if some are given: both or none.

        Refused while something runs on a machine that would disappear, or where the tenants' virtual clusters are not there.

        A fleet that is too large for one message goes in parts, of which `told` hears (maybe in another thread), and is applied
        when all have come, however long that takes. What breaks off is gone on with, also by another call with the same fleet.
        """
        applied = await self._apply(apply_request(fleet, tenants), told)
        return AppliedFleet(applied.regions, applied.clusters, applied.machines, applied.gpus)

    async def check_fleet(
        self,
        fleet: Fleet | fleet_pb2.Fleet,
        tenants: Iterable[Tenant | fleet_pb2.Tenant] | None = None,
        *,
        told: Callable[[FleetUploadProgress], None] | None = None,
    ) -> DryRunChanges:
        """As `apply_fleet`, but nothing is replaced: says what would change, and whether it would be refused as things stand.

        What is wrong whatever runs raises the same error.
        """
        request = apply_request(fleet, tenants)
        request.dry_run = True
        return changes_from_proto((await self._apply(request, told)).changes)

    async def _apply(
        self,
        request: global_scheduler_pb2.ApplyFleetRequest,
        told: Callable[[FleetUploadProgress], None] | None,
    ) -> global_scheduler_pb2.ApplyFleetResponse:
        if told is not None and not callable(told):
            raise refused("told", f"must be a function, or None, not {shown(told)}")
        if request.ByteSize() > LARGEST_SINGLE_BYTES:
            return await AsyncFleetUpload(self._connection, self._scheduler, self._peer, request, told).apply()
        return await self._connection.call(self._scheduler.ApplyFleet, request, self._peer)

    async def apply_tenants(self, tenants: Iterable[Tenant | fleet_pb2.Tenant]) -> int:
        """Replaces all tenants; refused while one that would disappear has workloads, or where the fleet has not their
        virtual clusters. Returns how many there are."""
        request = global_scheduler_pb2.ApplyTenantsRequest(tenants=tenants_to_proto(tenants))
        response = await self._connection.call(self._scheduler.ApplyTenants, request, self._peer)
        return response.tenants

    async def check_tenants(self, tenants: Iterable[Tenant | fleet_pb2.Tenant]) -> DryRunChanges:
        """As `apply_tenants`, but nothing is replaced: says what would change, and whether it would be refused."""
        request = global_scheduler_pb2.ApplyTenantsRequest(tenants=tenants_to_proto(tenants), dry_run=True)
        response = await self._connection.call(self._scheduler.ApplyTenants, request, self._peer)
        return changes_from_proto(response.changes)

    async def fleet(
        self, *, region: str = "", cluster: str = "", gpu_model: str | None = None
    ) -> tuple[FleetCapacity, ...]:
        """The GPUs of each cluster by model: in use, free, drained, down, lent."""
        request = message_of(fleet_state_pb2.GetFleetRequest, region=region, cluster=cluster, gpu_model=gpu_model)
        return capacities_from_proto(await self._connection.call(self._scheduler.GetFleet, request, self._peer))

    async def machines(self, **wanted: Unpack[MachineFilter]) -> AsyncGenerator[FleetMachine, None]:
        """Machines by name, with what is on them, page by page as they are asked for."""
        page_token = ""
        while True:
            page = await self.machines_page(page_size=LARGEST_PAGE, page_token=page_token, **wanted)
            for machine in page.machines:
                yield machine
            page_token = page.next_page_token
            if not page_token:
                return

    async def machines_page(
        self, *, page_size: int = 100, page_token: str = "", **wanted: Unpack[MachineFilter]
    ) -> MachinePage:
        """One page of machines by name, and the token of the next one."""
        request = list_machines_request(page_size, page_token, **wanted)
        return machine_page_from_proto(await self._connection.call(self._scheduler.ListMachines, request, self._peer))

    async def tenants(self, *, tenant: str = "") -> AsyncGenerator[TenantUse, None]:
        """Tenants by name: their quotas, what they use of them, borrow beyond them and wait for, and their credit."""
        page_token = ""
        while True:
            page = await self.tenants_page(page_size=LARGEST_PAGE, page_token=page_token, tenant=tenant)
            for one in page.tenants:
                yield one
            page_token = page.next_page_token
            if not page_token:
                return

    async def tenants_page(self, *, page_size: int = 100, page_token: str = "", tenant: str = "") -> TenantPage:
        """One page of tenants by name, and the token of the next one."""
        request = message_of(
            tenant_use_pb2.ListTenantsRequest, page_size=page_size, page_token=page_token, tenant=tenant
        )
        return tenant_page_from_proto(await self._connection.call(self._scheduler.ListTenants, request, self._peer))

    async def usage(self, **wanted: Unpack[UsageFilter]) -> AsyncGenerator[UsageRow, None]:
        """GPU-hours that attempts held, from dispatch to end, those that run until now; page by page as they are asked for."""
        page_token = ""
        while True:
            page = await self.usage_page(page_size=LARGEST_PAGE, page_token=page_token, **wanted)
            for row in page.rows:
                yield row
            page_token = page.next_page_token
            if not page_token:
                return

    async def usage_page(
        self, *, page_size: int = 100, page_token: str = "", **wanted: Unpack[UsageFilter]
    ) -> UsagePage:
        """One page of GPU-hours, what they cover, and the token of the next one."""
        request = usage_request(page_size, page_token, **wanted)
        return usage_page_from_proto(await self._connection.call(self._scheduler.GetUsage, request, self._peer))

    async def drain(
        self,
        names: str | Sequence[str],
        *,
        kind: str = "",
        reason: str = "",
        within_s: float | None = None,
        deadline_s: float | None = None,
    ) -> Drained:
        """Takes machines, racks, clusters or regions out of use until they are undrained; all of them, or none.

        What is there is evicted with a checkpoint: `within_s` seconds from now or at `deadline_s`, both on the clock of the
        service, else at once. Until then it may end by itself. Asked again it changes reason and deadline. `kind` (machine,
        rack, cluster, region) says what the names are where they could be several things; NAME or REGION/NAME.
        """
        request = drain_request(names, kind, reason, within_s, deadline_s)
        return drained_from_proto(await self._connection.call(self._scheduler.Drain, request, self._peer))

    async def undrain(self, names: str | Sequence[str], *, kind: str = "") -> Undrained:
        """Puts machines, racks, clusters or regions back into use; what is not drained stays as it is."""
        request = undrain_request(names, kind)
        return undrained_from_proto(await self._connection.call(self._scheduler.Undrain, request, self._peer))

    async def plan_machines(
        self, requests: str = "", *, region: str = "", time_limit_s: float | None = None
    ) -> tuple[MachinePlan, ...]:
        """Which machines would change their cluster by these requests (the text of a requests.yaml; "": those applied), region by
        region; "": of all. Changes nothing."""
        request = message_of(
            machine_assignment_pb2.PlanMachinesRequest, requests=requests, region=region, time_limit_s=time_limit_s
        )
        answer = await self._connection.call(self._scheduler.PlanMachines, request, self._peer)
        return machine_plans_from_proto(answer)

    async def explain_machine(self, name: str) -> tuple[str, ...]:
        """Why a machine is in its cluster, or what a cluster asks for and has: in sentences."""
        request = message_of(machine_assignment_pb2.ExplainMachineRequest, name=name)
        answer = await self._connection.call(self._scheduler.ExplainMachine, request, self._peer)
        return tuple(answer.sentences)

    async def declare_lost(self, region: str, cluster: str = "", *, yes: bool = False) -> DeclaredLost:
        """Says that a cluster, or (without one) all of a region, is lost: what ran there runs elsewhere, at once.

        What holds its lease is refused, unless `yes`: then what runs there is stopped.
        """
        request = message_of(global_scheduler_pb2.DeclareLostRequest, region=region, cluster=cluster, yes=yes)
        return declared_from_proto(await self._connection.call(self._scheduler.DeclareLost, request, self._peer))

    async def apply_machine_requests(self, requests: str, *, region: str = "") -> tuple[str, ...]:
        """Replaces what the clusters of the regions ask for of which one is named (the text of a requests.yaml), or of that region
        alone; their schedulers move machines by it. Returns these regions."""
        request = message_of(machine_assignment_pb2.ApplyMachineRequestsRequest, requests=requests, region=region)
        answer = await self._connection.call(self._scheduler.ApplyMachineRequests, request, self._peer)
        return tuple(answer.regions)
