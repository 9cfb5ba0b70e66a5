"""Hundreds of workloads of every kind, while people cancel, drain, and change the quotas and the fleet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import MachineId
from domain.resources import Quota
from domain.tenant import Tenant
from domain.workload import Emulated, TableInput, WorkloadSpecification
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from tests.live.running import LiveRun, in_live_service, is_end
from tests.live.world import (
    CANCEL_AT,
    FLEET,
    IMAGES,
    RANKING,
    RESEARCH,
    SPEECH,
    TABLES,
    TENANTS,
    V100,
    WEST,
    gpu_cluster,
    one_job,
    workloads,
)
from topmast import Event, PreconditionError
from topmast.v1 import regional_scheduler_pb2

pytestmark = pytest.mark.live

_COUNT = 200
_DRAINED, _DRAINED_FOR_GOOD = "east-a-m0", "east-a-m3"


def test_everything_at_once(database_url: str, tmp_path: Path, generator: np.random.Generator) -> None:
    mix = workloads(_COUNT, generator)
    moments = ("submitted", "waiting", "dispatched", "started", "evicting")
    for number, specification in enumerate(mix[: 5 * len(moments)]):
        mix[number] = replace(specification, labels=((CANCEL_AT, moments[number % len(moments)]),))
    # No region has both tables, until the new fleet has them.
    no_data = replace(
        one_job("no-data", RANKING, Emulated(60.0), gpus=1), tables=(TableInput(SPEECH), TableInput(IMAGES))
    )

    async def scenario(run: LiveRun) -> None:
        (waiting,) = await run.submit([no_data])
        await run.until_event("awaiting_data", waiting)
        for batch in range(0, _COUNT, 80):
            await run.submit(mix[batch : batch + 80])
        operator = _Operator(run)
        await run.follow(operator.react)
        report = run.check(_with_more_machines(FLEET, keep=True), _TENANTS_AT_MOST, _MORE_TABLES)
        assert operator.done
        await run.check_nothing_is_left()
        assert report.events_by_kind["reclassified"] > 0
        assert report.events_by_kind["completed"] > _COUNT / 2
        assert run.count("evicted", cause="preempted") > 0
        # Whether anything was on the drained machine is chance here; test_maintenance.py has it happen on purpose.
        assert report.events_by_kind["machine_draining"] > 0
        assert any(event.event == "cancelled" and event.attempt is None for event in run.events)
        assert any(event.event == "cancelled" and event.attempt is not None for event in run.events)
        assert sum(len({entry["cluster"] for entry in _placement(event)}) == 2 for event in run.events) > 0

    in_live_service(database_url, tmp_path, scenario)


class _Operator:
    """Does something to the service each time a certain number of workloads have ended."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._ended = 0
        self._steps = iter(
            (
                (10, self._drain),
                (60, self._undrain),
                (80, self._raise_quotas),
                (100, self._grow_fleet),
                (120, self._drain_for_good),
                (140, self._lower_quotas),
                (160, self._remove_machine),
            )
        )
        self._next = next(self._steps, None)

    @property
    def done(self) -> bool:
        return self._next is None

    async def react(self, event: Event) -> None:
        """Cancels what is to be cancelled at such an event, and does what is due."""
        specification = self._run.specifications.get(event.workload or "")
        if specification is not None and dict(specification.labels).get(CANCEL_AT) == event.event:
            await self._cancel(event.workload or "")
        self._ended += is_end(event)
        if self._next is not None and self._ended >= self._next[0]:
            _, step = self._next
            self._next = next(self._steps, None)
            await step()

    async def _cancel(self, workload: str) -> None:
        try:
            await self._run.client.cancel(workload, "wanted no more")
        except PreconditionError:
            return  # it has ended meanwhile

    async def _drain(self) -> None:
        await self._drain_machine(_DRAINED)

    async def _drain_for_good(self) -> None:
        await self._drain_machine(_DRAINED_FOR_GOOD)

    async def _drain_machine(self, machine: str) -> None:
        async with self._run.regional("east") as scheduler:
            await scheduler.DrainMachine(regional_scheduler_pb2.DrainMachineRequest(machine=machine))

    async def _undrain(self) -> None:
        async with self._run.regional("east") as scheduler:
            await scheduler.UndrainMachine(regional_scheduler_pb2.UndrainMachineRequest(machine=_DRAINED))

    async def _raise_quotas(self) -> None:
        await self._run.client.apply_tenants([tenant_to_proto(tenant) for tenant in _TENANTS_AT_MOST])

    async def _lower_quotas(self) -> None:
        await self._run.client.apply_tenants([tenant_to_proto(tenant) for tenant in TENANTS])

    async def _grow_fleet(self) -> None:
        await self._run.client.apply_fleet(fleet_to_proto(_with_more_machines(FLEET, keep=True), _MORE_TABLES))

    async def _remove_machine(self) -> None:
        """Drained long ago: nothing can be on it any more."""
        await self._run.client.apply_fleet(fleet_to_proto(_with_more_machines(FLEET, keep=False), _MORE_TABLES))


_TENANTS_AT_MOST: tuple[Tenant, ...] = tuple(
    replace(tenant, quota=Quota.of({model: 2 * gpus for model, gpus in tenant.quota.gpus}, tenant.quota.cpus))
    if tenant.tenant == RESEARCH
    else tenant
    for tenant in TENANTS
)


_MORE_TABLES = tuple(replace(table, replicas=(WEST,)) if table.table == SPEECH else table for table in TABLES)
"""With a copy of a table in the west."""


def _with_more_machines(fleet: Fleet, *, keep: bool) -> Fleet:
    """Two more machines in the west; without `keep` one machine less in the east."""
    east, west = fleet.regions
    east_a, east_b = east.clusters
    if not keep:
        east_a = Cluster(east_a.cluster, tuple(_without(rack, _DRAINED_FOR_GOOD) for rack in east_a.racks))
    west_a, west_b = west.clusters
    return Fleet(
        (
            Region(east.region, (east_a, east_b)),
            Region(west.region, (gpu_cluster(west_a.cluster, V100, 5), west_b)),
        ),
    )


def _without(rack: Rack, machine: str) -> Rack:
    kept: tuple[Machine, ...] = tuple(one for one in rack.machines if one.machine != MachineId(machine))
    return Rack(rack.rack, kept)


def _placement(event: Event) -> list[dict[str, object]]:
    placement = event.details.get("placement", []) if event.event == "dispatched" else []
    assert isinstance(placement, list)
    return [dict(entry) for entry in placement if isinstance(entry, dict)]


def test_what_is_cancelled_before_any_cluster_hears_of_it_never_starts(database_url: str, tmp_path: Path) -> None:
    wanted: WorkloadSpecification = one_job("w", RANKING, Emulated(600.0), gpus=8, model=V100)

    async def scenario(run: LiveRun) -> None:
        await run.service.stop("cluster/west-a")
        (workload,) = await run.submit([wanted])
        await run.until_event("dispatched", workload)
        await run.client.cancel(workload)
        end = await run.follow()
        assert (end.event, end.attempt) == ("cancelled", 1)
        run.check()
        await run.check_nothing_is_left()
        assert run.count("started") == 0

    in_live_service(database_url, tmp_path, scenario)
