"""Users of a simulated control plane: they apply a fleet, submit, look and cancel, ask again what was not answered, and write it all down."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import numpy as np

from domain.fleet import Fleet
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.chaos.driver.history import Kind, Operation, operations_of
from tests.deterministic.simulated_network import SimulatedNetwork
from topmast.v1 import global_scheduler_pb2 as messages
from topmast.v1 import global_scheduler_pb2_grpc, workload_pb2

_TIMEOUT_S = 8.0
_PAUSE_S = 0.3
_CANCELLED_SHARE, _SUBMITTED_AGAIN_SHARE = 0.25, 0.2
_MAY_BE_ASKED_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


@dataclass
class Users:
    """All of them, in one process that nothing befalls."""

    network: SimulatedNetwork
    addresses: Sequence[str]
    rng: np.random.Generator
    lines: list[dict[str, Any]] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """The workload by the key of its submission."""
    refused: list[str] = field(default_factory=list)
    """Answers that nobody should have had."""
    ready: bool = False
    """There is a fleet."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    async def run(
        self, fleet: Fleet, tenants: Sequence[Tenant], submissions: Sequence[tuple[float, WorkloadSpecification]]
    ) -> None:
        """Submits each so many seconds after the one before."""
        request = messages.ApplyFleetRequest(fleet=fleet_to_proto(fleet))
        wanted = messages.ApplyTenantsRequest(tenants=[tenant_to_proto(tenant) for tenant in tenants])
        await self._until_answered(lambda stub: stub.ApplyFleet(request, timeout=_TIMEOUT_S))
        await self._until_answered(lambda stub: stub.ApplyTenants(wanted, timeout=_TIMEOUT_S))
        self.ready = True
        async with asyncio.TaskGroup() as tasks:
            for pause_s, specification in submissions:
                await asyncio.sleep(pause_s)
                tasks.create_task(self._live(specification))

    def history(self) -> list[Operation]:
        return operations_of(self.lines)

    async def _live(self, specification: WorkloadSpecification) -> None:
        key, message = specification.name, specification_to_proto(specification)
        workload = ""
        while not workload:
            workload = await self._submit(key, message)
            await asyncio.sleep(_PAUSE_S)
        self.acknowledged[key] = workload
        later: list[Callable[[], Awaitable[object]]] = [partial(self._look, key, workload)] * int(self.rng.integers(3))
        if self.rng.random() < _CANCELLED_SHARE:
            later += [partial(self._cancel, key, workload)] * 2
        if self.rng.random() < _SUBMITTED_AGAIN_SHARE:
            later.append(partial(self._submit, key, message))
        await asyncio.gather(*(self._later(one) for one in later))

    async def _later(self, call: Callable[[], Awaitable[object]]) -> None:
        await asyncio.sleep(float(self.rng.uniform(0.0, 8.0)))
        await call()

    async def _submit(self, key: str, message: workload_pb2.WorkloadSpecification) -> str:
        request = messages.SubmitWorkloadRequest(specification=message, idempotency_key=key)
        told = await self._call(key, Kind.SUBMIT, lambda stub: stub.SubmitWorkload(request, timeout=_TIMEOUT_S))
        return "" if told is None else str(told.workload)

    async def _look(self, key: str, workload: str) -> None:
        request = messages.GetWorkloadRequest(workload=workload)
        await self._call(key, Kind.GET, lambda stub: stub.GetWorkload(request, timeout=_TIMEOUT_S))

    async def _cancel(self, key: str, workload: str) -> None:
        request = messages.CancelWorkloadRequest(workload=workload)
        await self._call(key, Kind.CANCEL, lambda stub: stub.CancelWorkload(request, timeout=_TIMEOUT_S))

    async def _call(self, key: str, kind: Kind, call: Callable[[Any], Awaitable[Any]]) -> Any:
        """The answer; None when nobody knows what became of it, or when it was refused as it should be."""
        number = str(next(self._numbers))
        loop = asyncio.get_running_loop()
        self.lines.append({"number": number, "key": key, "kind": kind, "called_s": loop.time()})
        told: dict[str, Any]
        try:
            answer = await call(self._stub())
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                told = {"found": False}
            elif kind is Kind.CANCEL and error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                told = {"refused": True}
            else:
                if error.code() not in _MAY_BE_ASKED_AGAIN:
                    self.refused.append(f"{kind} of {key}: {error.code().name}: {error.details()}")
                return None
            answer = None
        else:
            told = _told(kind, answer)
        self.lines.append({"number": number, "returned_s": loop.time(), **told})
        return answer

    async def _until_answered(self, call: Callable[[Any], Awaitable[Any]]) -> None:
        while True:
            try:
                await call(self._stub())
            except grpc.aio.AioRpcError as error:
                if error.code() not in _MAY_BE_ASKED_AGAIN:
                    raise
                await asyncio.sleep(_PAUSE_S)
            else:
                return

    def _stub(self) -> Any:
        address = str(self.rng.choice(list(self.addresses)))
        channel: Any = self.network.channel(address)
        return global_scheduler_pb2_grpc.GlobalSchedulerStub(channel)


def _told(kind: Kind, answer: Any) -> dict[str, Any]:
    if kind is Kind.SUBMIT:
        return {"workload": answer.workload, "existed": answer.existed}
    state = workload_pb2.WorkloadState.Name(answer.state).removeprefix("WORKLOAD_STATE_")
    if kind is Kind.GET:
        return {"state": state, "attempts": len(answer.attempts)}
    return {"state": state}
