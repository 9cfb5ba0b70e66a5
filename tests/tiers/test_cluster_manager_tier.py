"""A cluster manager follows the fleet's revision: as long as that is the same, it reads no machines."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from domain.fleet import Cluster, Fleet, Machine, Rack, Region
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId, RegionId
from services.clock import SystemClock
from services.cluster_manager.tier import ClusterManagerTier
from services.configuration import Configuration
from services.database import fleet_store
from services.database.channels import FLEET_CHANNEL
from services.database.connection import AnyConnection, wake_after_commit
from services.database.engine import Database
from tests.execution.calls import calling
from topmast.v1 import cluster_manager_pb2, cluster_manager_pb2_grpc

_CLUSTER = ClusterId("east-a")


def _fleet(machines: int) -> Fleet:
    held = tuple(Machine(MachineId(f"m{number}"), GpuModel("A100"), 8, 96.0, 768.0) for number in range(machines))
    cluster = Cluster(_CLUSTER, (Rack(RackId("r0"), held),))
    other = replace(cluster, cluster=ClusterId("east-b"), racks=())
    return Fleet((Region(RegionId("east"), (cluster, other)),))


async def _wake(connection: AnyConnection) -> None:
    wake_after_commit(connection, FLEET_CHANNEL)


async def _waited_for(connection: AnyConnection) -> set[str]:
    """The tables that somebody waits for."""
    cursor = await connection.execute("""SELECT relation::regclass::text FROM pg_locks
            WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())""")
    return {row[0] for row in await cursor.fetchall()}


async def _table_looked_at(database: Database) -> set[str]:
    """The first that is waited for after a wake-up, while nobody can read revisions."""
    async with database.transaction() as looking, database.transaction() as locking:
        await locking.execute("LOCK TABLE revisions IN ACCESS EXCLUSIVE MODE")
        await database.run(_wake)
        waited: set[str] = set()
        while not waited:
            waited = await _waited_for(looking)
            await asyncio.sleep(0.01)
        return waited


def test_as_long_as_the_revision_is_the_same_no_machines_are_read(database_url: str, tmp_path: Path) -> None:
    async def machines(stub: cluster_manager_pb2_grpc.ClusterManagerAsyncStub) -> list[str]:
        status = await stub.GetStatus(cluster_manager_pb2.GetClusterStatusRequest(), wait_for_ready=True)
        return [machine.machine for machine in status.machines]

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, _fleet(2)))
            tier = ClusterManagerTier(_CLUSTER, database, SystemClock(), Configuration(), home=tmp_path, on_ray=False)
            port = await tier.start("127.0.0.1:0")
            running = asyncio.ensure_future(tier.run(f"127.0.0.1:{port}", "it"))
            try:
                async with asyncio.timeout(60), calling(port) as stub:
                    assert await machines(stub) == ["m0", "m1"]
                    async with database.transaction() as locking:
                        await locking.execute("LOCK TABLE machines IN ACCESS EXCLUSIVE MODE")
                        for _ in range(3):
                            assert await _table_looked_at(database) == {"revisions"}
                    await database.run(lambda connection: fleet_store.apply_fleet(connection, _fleet(3)))
                    named: list[str] = []
                    while len(named) < 3:
                        named = await machines(stub)
                    assert named == ["m0", "m1", "m2"]
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())
