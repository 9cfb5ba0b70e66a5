import asyncio
import sys
from dataclasses import replace

import grpc
import pytest
from google.rpc import error_details_pb2

from domain.fleet import Cluster, Fleet, Region
from domain.identifiers import ANY_GPU_MODEL, RackId, RegionId, TableId, WorkloadId
from domain.inference import InferenceSide
from domain.machine_life_cycle import MachineHappening
from domain.machine_moves import MachineMovement, MoveState
from domain.resources import Quota
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import TableInput
from services.database import lease_store, machine_move_store, quota_store
from services.database.connection import AnyConnection
from services.regional_scheduler.machine_states import record_machine_happening
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.workloads import specification_to_proto
from tests.database.small_world import (
    ADS,
    EAST,
    FLEET,
    TABLES,
    TENANTS,
    VISION,
    cluster,
    dispatch,
    specification,
    until_somebody_waits,
)
from tests.global_scheduler_service.service import (
    Service,
    attempt_of,
    detail,
    in_service,
    refused,
    running_service,
    violated_fields,
)
from topmast.v1 import fleet_pb2
from topmast.v1 import global_scheduler_pb2 as messages

_NO_A100_BUCKET = (replace(TENANTS[0], quota=Quota.of({ANY_GPU_MODEL: 40}, cpus=100.0)), TENANTS[1])


async def _dispatch_charged(service: Service) -> WorkloadId:
    """A running workload of ADS, charged within its quota as a region does."""
    workload = WorkloadId((await service.submit()).workload)
    attempt = attempt_of(workload)

    async def charged(connection: AnyConnection) -> None:
        fits = await quota_store.charge(connection, [(ADS, attempt.charges)], {ADS: {"A100": 16}})
        assert fits == [True]
        await dispatch(connection, attempt)

    await service.database.run(charged)
    return workload


def test_what_is_applied_counts_at_once(database_url: str) -> None:
    async def run() -> None:
        async with running_service(database_url) as service:
            fleet = await service.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=fleet_to_proto(FLEET, TABLES)))
            assert (fleet.regions, fleet.clusters, fleet.machines, fleet.gpus) == (2, 3, 7, 56)
            tenants = [tenant_to_proto(tenant) for tenant in TENANTS]
            assert (await service.stub.ApplyTenants(messages.ApplyTenantsRequest(tenants=tenants))).tenants == 2
            assert (await service.submit()).workload

    asyncio.run(run())


def test_a_forecast_whose_library_is_missing_is_refused_and_nothing_is_applied(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The field is named, with both remedies; the fleet before it stays. With another forecast it is applied."""
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    (east, *others), side = FLEET.regions, InferenceSide("serving:7470", forecast="autoregressive")
    serving = replace(cluster("serving", 1), inference=side)

    def with_serving(added: Cluster) -> messages.ApplyFleetRequest:
        fleet = Fleet((replace(east, clusters=(*east.clusters, added)), *others))
        return messages.ApplyFleetRequest(fleet=fleet_to_proto(fleet, TABLES))

    async def scenario(service: Service) -> None:
        error = await refused(service.stub.ApplyFleet(with_serving(serving)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        (violation,) = detail(error, error_details_pb2.BadRequest).field_violations
        assert violation.field == f"fleet.regions[0].clusters[{len(east.clusters)}].inference.forecast"
        assert "pip install 'topmast[forecasting]', or choose the forecast persistence" in violation.description
        assert not (await service.stub.GetLoans(messages.GetLoansRequest())).clusters
        persistent = replace(serving, inference=replace(side, forecast="persistence"))
        await service.stub.ApplyFleet(with_serving(persistent))
        (shown,) = (await service.stub.GetLoans(messages.GetLoansRequest())).clusters
        assert (shown.cluster, shown.machines, shown.on_loan) == ("serving", 2, 0)

    in_service(database_url, scenario)


def test_a_machine_in_use_does_not_disappear(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = await _dispatch_charged(service)
        smaller = Fleet((Region(EAST, (cluster("east-a"),)),))
        error = await refused(service.apply(smaller, tables=()))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        (violation,) = detail(error, error_details_pb2.PreconditionFailure).violations
        assert workload in violation.description
        assert len((await service.stub.GetStatus(messages.GetStatusRequest())).regions) == 2
        larger = replace(FLEET, regions=(*FLEET.regions, Region(RegionId("west"), (cluster("west-a"),))))
        await service.apply(larger)
        assert len((await service.stub.GetStatus(messages.GetStatusRequest())).regions) == 3

    in_service(database_url, scenario)


def test_tables_are_known_as_soon_as_they_are_applied_and_no_longer_than_that(database_url: str) -> None:
    wanted = specification_to_proto(replace(specification(ADS), tables=(TableInput(TableId("new")),)))

    async def scenario(service: Service) -> None:
        unknown = await refused(service.submit(wanted))
        assert violated_fields(unknown) == ["specification.tables[0].table"]
        await service.apply(tables=(*TABLES, Table(TableId("new"), 1, EAST)))
        assert (await service.submit(wanted)).workload
        await service.apply()
        assert violated_fields(await refused(service.submit(wanted))) == ["specification.tables[0].table"]
        assert await service.rows("SELECT subject, revision FROM revisions WHERE subject IN ('fleet', 'catalog')") == [
            ("fleet", 1),
            ("catalog", 3),
        ]

    in_service(database_url, scenario)


def test_a_tenant_with_work_does_not_disappear(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        error = await refused(service.apply(tenants=TENANTS[1:]))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "ads (1)" in str(error.details())
        await service.stub.CancelWorkload(messages.CancelWorkloadRequest(workload=workload))
        await service.apply(tenants=TENANTS[1:])
        gone = await refused(service.submit())
        assert violated_fields(gone) == ["specification.tenant"]

    in_service(database_url, scenario)


def test_other_buckets_charge_what_runs_anew(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = await _dispatch_charged(service)
        assert await service.rows("SELECT tenant, bucket, amount FROM quota_use") == [("ads", "A100", 8)]
        await service.apply(tenants=_NO_A100_BUCKET)
        assert await service.rows("SELECT charges FROM attempts WHERE workload = %s", workload) == [({"any": 8},)]
        assert await service.rows("SELECT tenant, bucket, amount FROM quota_use") == [("ads", "any", 8)]
        await service.apply(tenants=TENANTS)
        assert await service.rows("SELECT tenant, bucket, amount FROM quota_use") == [("ads", "A100", 8)]

    in_service(database_url, scenario)


def test_an_over_quota_attempt_is_not_charged_to_the_new_bucket(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = await _dispatch_charged(service)
        await service.rows("UPDATE attempts SET within_quota = false RETURNING 1")
        await service.apply(tenants=_NO_A100_BUCKET)
        assert await service.rows("SELECT charges FROM attempts WHERE workload = %s", workload) == [({"any": 8},)]
        rows = await service.rows("SELECT sum(amount) FROM quota_use WHERE NOT (tenant = 'ads' AND bucket = 'any')")
        assert rows == [(None,)]

    in_service(database_url, scenario)


def _with(good: Tenant, **changed: object) -> fleet_pb2.Tenant:
    message = tenant_to_proto(good)
    for name, value in changed.items():
        setattr(message, name, value)
    return message


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (_with(TENANTS[0], priority=7), "tenants[0].priority"),
        (_with(TENANTS[0], cpu_quota=float("nan")), "tenants[0].cpu_quota"),
        (_with(TENANTS[0], fair_share_weight=-1.0), "tenants[0].fair_share_weight"),
        (_with(TENANTS[0], tenant="two words"), "tenants[0].tenant"),
        (fleet_pb2.Tenant(tenant="ads", gpu_quota={"A100": -1}), "tenants[0].gpu_quota.A100"),
        (fleet_pb2.Tenant(tenant="ads", gpu_quota={"cpus": 4}), "tenants[0].gpu_quota.cpus"),
    ],
)
def test_bad_tenants_are_refused_by_field(database_url: str, message: fleet_pb2.Tenant, field: str) -> None:
    async def scenario(service: Service) -> None:
        error = await refused(service.stub.ApplyTenants(messages.ApplyTenantsRequest(tenants=[message])))
        assert (error.code(), violated_fields(error)) == (grpc.StatusCode.INVALID_ARGUMENT, [field])
        none = await refused(service.stub.ApplyTenants(messages.ApplyTenantsRequest()))
        assert (none.code(), violated_fields(none)) == (grpc.StatusCode.INVALID_ARGUMENT, ["tenants"])

    in_service(database_url, scenario)


def test_bad_fleets_are_refused_by_field(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        message = fleet_to_proto(FLEET, TABLES)
        machines = message.regions[0].clusters[0].racks[0].machines
        machines[0].gpus, machines[1].cpus = 63, float("inf")
        message.tables[0].home = "nowhere"
        error = await refused(service.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=message)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violated_fields(error) == [
            "fleet.regions[0].clusters[0].racks[0].machines[0].gpus",
            "fleet.regions[0].clusters[0].racks[0].machines[1].cpus",
        ]
        message.regions[1].clusters[0].mechanism = "stacking"
        machines[0].gpus, machines[1].cpus, machines[1].machine = 8, 96.0, machines[0].machine
        error = await refused(service.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=message)))
        assert violated_fields(error) == [
            "fleet.regions[0].clusters[0].racks[0].machines[1]",
            "fleet.regions[1].clusters[0].mechanism",
            "fleet.tables[0].home",
        ]

    in_service(database_url, scenario)


def test_submissions_are_judged_by_the_present_fleet(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        wanted = specification_to_proto(specification(VISION))
        wanted.jobs[0].resources.gpu_model = "H100"
        assert violated_fields(await refused(service.submit(wanted))) == ["specification.jobs[0].resources.gpu_model"]
        message = fleet_to_proto(FLEET, TABLES)
        for machine in message.regions[1].clusters[0].racks[0].machines:
            machine.gpu_model = "H100"
        await service.stub.ApplyFleet(messages.ApplyFleetRequest(fleet=message))
        assert (await service.submit(wanted)).workload

    in_service(database_url, scenario)


@pytest.mark.parametrize(
    ("happenings", "ups"), [(("failed",), 1), (("drained",), 1), (("failed", "drained"), 2), ((), 0)]
)
def test_a_machine_that_was_down_when_it_was_taken_out_comes_back_up(
    database_url: str, happenings: tuple[str, ...], ups: int
) -> None:
    """In the event log too: else what runs there later would run on a machine that is down."""
    (east, *others) = FLEET.regions
    region = replace(east, clusters=east.clusters[1:])
    machine = next(iter(east.clusters[0].machines())).machine

    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            async with service.database.transaction() as connection:
                for happening in happenings:
                    await record_machine_happening(
                        connection, east.region, machine, MachineHappening(happening), "tried", 1_000.0
                    )
            await service.apply(fleet=Fleet((region, *others)))
            await service.apply()
            rows = await service.rows("SELECT count(*) FROM events WHERE event = 'machine_up'")
            assert rows == [(ups,)]

    asyncio.run(run())


def test_a_fleet_that_has_a_moving_machine_elsewhere_gives_it_work_again(database_url: str) -> None:
    """It drained because it was on its way, and nobody else would ever undo that."""
    (east, coast) = FLEET.regions
    (b, a), (c,) = east.clusters, coast.clusters
    (rack,) = a.racks
    to_b, to_coast = rack.machines
    rack = replace(rack, rack=RackId("from-a"))
    waiting = next(iter(b.machines())).machine
    after = Fleet(
        (
            replace(east, clusters=(replace(b, racks=(*b.racks, replace(rack, machines=(to_b,)))),)),
            replace(coast, clusters=(replace(c, racks=(*c.racks, replace(rack, machines=(to_coast,)))),)),
        )
    )

    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            async with service.database.transaction() as connection:
                for machine in (to_b.machine, to_coast.machine):
                    await record_machine_happening(
                        connection, east.region, machine, MachineHappening.DRAINED, "it moves", 1_000.0
                    )
                moves = [
                    MachineMovement(one.machine, a.cluster, b.cluster, MoveState.DRAINING, 999.0, 2_000.0)
                    for one in (to_b, to_coast)
                ]
                moves.append(MachineMovement(waiting, b.cluster, a.cluster, MoveState.WAITING, 999.0))
                await machine_move_store.store_moves(connection, east.region, moves)
            await service.apply(fleet=after)
            assert await service.rows("SELECT DISTINCT state FROM machines") == [("up",)]
            # What was not touched goes on.
            assert await service.rows("SELECT machine FROM machine_moves") == [(waiting,)]
            ups = await service.rows("SELECT region, cluster FROM events WHERE event = 'machine_up' ORDER BY sequence")
            assert ups == [("east", "east-b"), ("coast", "coast-a")]

    asyncio.run(run())


def test_a_machine_that_goes_down_while_it_is_taken_out_comes_back_up(database_url: str) -> None:
    (east, *others) = FLEET.regions
    region = replace(east, clusters=east.clusters[1:])
    machine = next(iter(east.clusters[0].machines())).machine

    async def run() -> None:
        async with running_service(database_url) as service:
            await service.apply()
            async with service.database.transaction() as connection:
                lease = await lease_store.acquire(connection, "regional/east", "it", "nowhere", 1, 600.0)
            assert lease is not None
            async with service.database.transaction() as connection:
                await lease_store.assert_held(connection, lease)
                await record_machine_happening(
                    connection, east.region, machine, MachineHappening.FAILED, "tried", 1_000.0
                )
                applying = asyncio.ensure_future(service.apply(fleet=Fleet((region, *others))))
                await until_somebody_waits(service.database)
            await applying
            rows = await service.rows("SELECT event FROM events WHERE event LIKE 'machine%%' ORDER BY sequence")
            assert rows == [("machine_down",), ("machine_up",)]

    asyncio.run(run())
