import asyncio
import dataclasses
from functools import partial

import pytest
from psycopg.errors import CheckViolation

from cluster_manager.attempt_run.actions import RecordEnd
from domain.cells import CellHierarchy, CellLevel, ClusterCells
from domain.fleet import Cluster, Fleet, MachineState, Region
from domain.identifiers import MachineId, RackId, RegionId, WorkloadId
from domain.life_cycle import State
from services.database import attempt_store, fleet_store, lease_store
from services.database.engine import Database
from services.database.fleet_store import FLEET_CHANNEL, FleetRefused, RegionSummary
from services.database.lease_store import Lease, LeaseLost
from services.database.revision_store import load_revisions
from tests.database.small_world import (
    A100,
    EAST,
    FLEET,
    cluster,
    dispatch,
    new_attempt,
    submission,
    submit,
    until_somebody_waits,
)


def _without_machine(fleet: Fleet, name: str) -> Fleet:
    return dataclasses.replace(
        fleet,
        regions=tuple(
            Region(
                region.region,
                tuple(
                    Cluster(
                        old.cluster,
                        tuple(
                            dataclasses.replace(rack, machines=tuple(m for m in rack.machines if m.machine != name))
                            for rack in old.racks
                        ),
                    )
                    for old in region.clusters
                ),
            )
            for region in fleet.regions
        ),
    )


def test_fleet_comes_back_as_it_was_applied(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            assert await database.run(fleet_store.load_fleet) == (Fleet(()), {})
            assert await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET)) == 1
            fleet, states = await database.run(fleet_store.load_fleet)
            assert fleet == FLEET
            assert states == {m.machine: MachineState.UP for region in FLEET.regions for m in region.machines()}
            assert (await database.run(load_revisions)).fleet == 1

    asyncio.run(scenario())


def test_same_fleet_again_changes_nothing_and_wakes_nobody(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            async with database.listen(FLEET_CHANNEL) as subscription:
                await subscription.wait()
                assert await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET)) == 1
                larger = Fleet((*FLEET.regions, Region(RegionId("north"), ())))
                assert await database.run(lambda connection: fleet_store.apply_fleet(connection, larger)) == 2
                assert await subscription.wait(60.0)
            assert (await database.run(fleet_store.load_fleet))[0] == larger

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changed",
    [
        Fleet((FLEET.regions[1], FLEET.regions[0])),
        Fleet((Region(EAST, (cluster("east-c"),)),)),
        Fleet(
            (Region(EAST, (cluster("east-b", gpus=4), cluster("coast-a", racks=1))),),
        ),
        Fleet(()),
    ],
    ids=["order", "clusters", "hardware and region", "nothing left"],
)
def test_any_idle_fleet_can_be_replaced(database_url: str, changed: Fleet) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            assert await database.run(lambda connection: fleet_store.apply_fleet(connection, changed)) == 2
            assert (await database.run(fleet_store.load_fleet))[0] == changed

    asyncio.run(scenario())


def test_machine_states_survive(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            async with database.transaction() as connection:
                await connection.execute("UPDATE machines SET state = 'draining' WHERE machine = 'east-b-r0-m1'")
                await connection.execute("UPDATE machines SET state = 'down' WHERE machine = 'east-b-r0-m0'")
            smaller = _without_machine(FLEET, "east-b-r0-m0")
            await database.run(lambda connection: fleet_store.apply_fleet(connection, smaller))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            fleet, states = await database.run(fleet_store.load_fleet)
            assert fleet == FLEET
            assert states[MachineId("east-b-r0-m1")] is MachineState.DRAINING
            assert states[MachineId("east-b-r0-m0")] is MachineState.UP  # a new one of the same name

    asyncio.run(scenario())


def test_a_cluster_keeps_its_mechanism_and_another_one_is_a_change(database_url: str) -> None:
    east = FLEET.regions[0]
    changed = Fleet((Region(EAST, (dataclasses.replace(east.clusters[0], mechanism="cells"), east.clusters[1])),))

    async def scenario() -> None:
        async with Database(database_url) as database:
            first = await database.run(partial(fleet_store.apply_fleet, fleet=FLEET))
            assert await database.run(partial(fleet_store.apply_fleet, fleet=changed)) == first + 1
            assert (await database.run(fleet_store.load_fleet))[0] == changed

    asyncio.run(scenario())


def test_a_cluster_keeps_its_hierarchies_and_others_are_a_change(database_url: str) -> None:
    east = FLEET.regions[0]
    levels = (CellLevel("gpu"), CellLevel("machine", 8), CellLevel("rack", 2))
    machines = tuple(machine.machine for machine in east.clusters[0].machines())

    def divided(*hierarchies: CellHierarchy) -> Fleet:
        divided = dataclasses.replace(east.clusters[0], mechanism="cells", cells=ClusterCells(hierarchies))
        return Fleet((Region(EAST, (divided, east.clusters[1])),))

    all_of_them, two = CellHierarchy("a", A100, levels), CellHierarchy("a", A100, levels, machines[:2])

    async def scenario() -> None:
        async with Database(database_url) as database:
            for revision, fleet in enumerate((FLEET, divided(), divided(all_of_them), divided(two)), 1):
                for _ in range(2):
                    assert await database.run(partial(fleet_store.apply_fleet, fleet=fleet)) == revision
                assert (await database.run(fleet_store.load_fleet))[0] == fleet

    asyncio.run(scenario())


def test_machine_in_use_must_not_disappear_or_change(database_url: str) -> None:
    name = WorkloadId("w000001")
    other_rack = tuple(
        dataclasses.replace(rack, rack=RackId(f"new-{rack.rack}")) for rack in FLEET.regions[0].clusters[0].racks
    )
    renamed = Fleet(
        (
            Region(EAST, (Cluster(FLEET.regions[0].clusters[0].cluster, other_rack), FLEET.regions[0].clusters[1])),
            FLEET.regions[1],
        ),
    )
    smaller = Fleet((Region(EAST, (cluster("east-b", gpus=4), FLEET.regions[0].clusters[1])), FLEET.regions[1]))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            await database.run(lambda connection: submit(connection, [submission(1)]))
            await database.run(lambda connection: dispatch(connection, new_attempt(name)))
            for bad in (_without_machine(FLEET, "east-b-r0-m0"), smaller, Fleet(())):
                with pytest.raises(FleetRefused, match=r"east-b-r0-m0 \(w000001#1\)"):
                    await database.run(partial(fleet_store.apply_fleet, fleet=bad))
            assert (await database.run(fleet_store.load_fleet))[0] == FLEET
            # Another machine may go, and a rack may get another name, under running work.
            await database.run(
                lambda connection: fleet_store.apply_fleet(connection, _without_machine(FLEET, "east-b-r1-m1"))
            )
            await database.run(lambda connection: fleet_store.apply_fleet(connection, renamed))
            assert (await database.run(fleet_store.load_fleet))[0] == renamed
            end = RecordEnd(new_attempt(name).key, "completed", "", 60.0, 1.0, 1.0, State.COMPLETED)
            await database.run(lambda connection: attempt_store.record_ends(connection, [end], {}))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, Fleet(())))

    asyncio.run(scenario())


async def _leases(database: Database) -> dict[str, Lease]:
    leases = {}
    for region in ("east", "coast"):
        async with database.transaction() as connection:
            lease = await lease_store.acquire(connection, f"regional/{region}", "me", "here:1", 1, 60.0)
        assert lease is not None
        leases[region] = lease
    return leases


def test_region_that_loses_a_machine_keeps_its_lease_and_sees_the_new_fleet(database_url: str) -> None:
    """1. A region writes. 2. A machine is to go: that waits. 3. What the region writes next sees that it is gone."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            east = (await _leases(database))["east"]
            smaller = _without_machine(FLEET, "east-b-r0-m0")
            async with database.transaction() as writing:
                await lease_store.assert_held(writing, east)
                applying = asyncio.ensure_future(database.run(partial(fleet_store.apply_fleet, fleet=smaller)))
                await until_somebody_waits(database)
                assert (await load_revisions(writing)).fleet == 1
            assert await applying == 2
            async with database.transaction() as writing:
                await lease_store.assert_held(writing, east)
                assert (await load_revisions(writing)).fleet == 2

    asyncio.run(scenario())


def test_regions_that_exchange_a_cluster_start_anew(database_url: str) -> None:
    east, coast = FLEET.regions
    moved = Fleet((Region(EAST, (*east.clusters, *coast.clusters)), Region(coast.region, ())))

    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            leases = await _leases(database)
            await database.run(partial(fleet_store.apply_fleet, fleet=moved))
            for lease in leases.values():
                with pytest.raises(LeaseLost):
                    await database.run(partial(lease_store.assert_held, lease=lease))

    asyncio.run(scenario())


def test_regions_at_a_glance(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(lambda connection: fleet_store.apply_fleet(connection, FLEET))
            await database.run(lambda connection: submit(connection, [submission(1), submission(2)]))
            await database.run(lambda connection: dispatch(connection, new_attempt(WorkloadId("w000001"))))
            second = new_attempt(WorkloadId("w000002"), machine="east-b-r0-m1", gpus=4)
            await database.run(lambda connection: dispatch(connection, second))
            async with database.transaction() as connection:
                await connection.execute("UPDATE machines SET state = 'down' WHERE machine = 'east-b-r1-m1'")
                summaries = await fleet_store.summarise_regions(connection)
            assert summaries == [
                RegionSummary(EAST, 2, 6, 5, 48, 12, 2, 0),
                RegionSummary(RegionId("coast"), 1, 1, 1, 8, 0, 0, 0),
            ]

    asyncio.run(scenario())


def test_a_machine_can_be_in_every_state_that_there_is_and_in_no_other(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await fleet_store.apply_fleet(connection, FLEET)
                for state in MachineState:
                    await connection.execute("UPDATE machines SET state = %s", (state.value,))
            with pytest.raises(CheckViolation, match="machines_state"):
                async with database.transaction() as connection:
                    await connection.execute("UPDATE machines SET state = 'asleep'")

    asyncio.run(scenario())
