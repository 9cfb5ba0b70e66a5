"""A small fleet, two tenants, and workloads for the tests of the stores."""

from collections.abc import Sequence

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import (
    ANY_GPU_MODEL,
    AttemptNumber,
    ClusterId,
    GpuModel,
    JobName,
    MachineId,
    RackId,
    RegionId,
    TableId,
    TenantId,
    WorkloadId,
)
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.resources import Quota, TaskResources
from domain.table import Table
from domain.tenant import Tenant
from domain.workload import Command, Emulated, JobSpecification, WorkloadSpecification
from services.database import attempt_store, tenant_store, workload_store
from services.database.attempt_store import NewAttempt
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.workload_store import NewWorkload, SubmissionResult

EAST = RegionId("east")
ADS = TenantId("ads")
VISION = TenantId("vision")
A100 = GpuModel("A100")

FORGET_WORKLOADS = "DELETE FROM workloads; DELETE FROM jobs; DELETE FROM queue_entries; DELETE FROM auction_refusals; DELETE FROM auction_walks"
"""Between the examples of a property, which share a database."""

TENANTS = (
    Tenant(ADS, 1, Quota.of({A100: 16, ANY_GPU_MODEL: 4}, cpus=100.0)),
    Tenant(VISION, 3, Quota.of({ANY_GPU_MODEL: 8}), fair_share_weight=2.0),
)


def cluster(name: str, racks: int = 2, machines_per_rack: int = 2, gpus: int = 8) -> Cluster:
    return Cluster(
        ClusterId(name),
        tuple(
            Rack(
                RackId(f"r{rack}"),
                tuple(
                    Machine(MachineId(f"{name}-r{rack}-m{number}"), A100, gpus, 96.0, 1152.0)
                    for number in range(machines_per_rack)
                ),
            )
            for rack in range(racks)
        ),
    )


FLEET = Fleet(
    (
        Region(EAST, (cluster("east-b"), cluster("east-a", racks=1))),
        Region(RegionId("coast"), (cluster("coast-a", racks=1, machines_per_rack=1),)),
    ),
)
TABLES = (
    Table(TableId("clicks"), 10**12, EAST, (RegionId("coast"),)),
    Table(TableId("images"), 5, RegionId("coast")),
)


def specification(
    tenant: TenantId = ADS, *, name: str = "night-run", gpus: int = 8, tasks: int = 1, emulated: bool = True
) -> WorkloadSpecification:
    job = JobSpecification(
        JobName("train"),
        tasks,
        TaskResources(gpus, A100 if gpus else ANY_GPU_MODEL, None if gpus else 4.0, None if gpus else 16.0),
        Emulated(600.0) if emulated else Command(("train",)),
    )
    return WorkloadSpecification(name, tenant, (job,))


def submission(
    number: int,
    wanted: WorkloadSpecification | None = None,
    *,
    key: str | None = None,
    digest: bytes | None = None,
    submitted_s: float | None = None,
) -> NewWorkload:
    return NewWorkload(
        WorkloadId(f"w{number:06d}"),
        wanted or specification(),
        f"specification {number}".encode(),
        1000.0 + number if submitted_s is None else submitted_s,
        key,
        digest,
    )


async def submit(connection: AnyConnection, submissions: Sequence[NewWorkload]) -> list[SubmissionResult]:
    """With the tenants that they need."""
    await tenant_store.apply_tenants(connection, TENANTS)
    return await workload_store.insert_submissions(connection, submissions)


def placement(machine: str = "east-b-r0-m0", gpus: int = 8) -> TaskPlacement:
    return TaskPlacement(
        JobName("train"), 0, ClusterId(machine.rsplit("-", 2)[0]), MachineId(machine), tuple(range(gpus)), 96_000, 1024
    )


def new_attempt(
    workload: WorkloadId,
    attempt: int = 1,
    *,
    dispatched_s: float = 2000.0,
    machine: str = "east-b-r0-m0",
    gpus: int = 8,
    tenant: TenantId = ADS,
) -> NewAttempt:
    return NewAttempt(
        key=AttemptKey(workload, AttemptNumber(attempt)),
        tenant=tenant,
        standing=Standing(1, 0),
        within_quota=True,
        guaranteed=True,
        dispatched_s=dispatched_s,
        progress_at_start=0.0,
        charges={"A100": gpus},
        placements=(placement(machine, gpus),),
    )


async def dispatch(connection: AnyConnection, *attempts: NewAttempt) -> None:
    await attempt_store.dispatch(connection, EAST, attempts)


async def award_to_east(connection: AnyConnection, *workloads: WorkloadId) -> None:
    """The region has won these in a round that is closed, and has not dispatched them yet."""
    await connection.execute(
        """INSERT INTO auction_rounds (round, scan_pass, opened_at, deadline_at, closed_at, now_s, participants, lots)
           VALUES (1, 1, now(), now(), now(), 0, ARRAY['east'], '{}')"""
    )
    await connection.execute(
        "INSERT INTO awards (workload, region, round, lot) SELECT unnest(%s::text[]), %s, 1, 0", (list(workloads), EAST)
    )


async def until_somebody_waits(database: Database) -> None:
    """Until another transaction waits for a lock of ours."""
    while True:
        async with database.transaction() as connection:
            cursor = await connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            row = await cursor.fetchone()
        if row is not None and row[0] > 0:
            return
