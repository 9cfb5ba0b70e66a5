"""Machines that are kept for gangs, through PostgreSQL: made, kept over a restart, spent, given up, taken over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from domain.fleet import MachineState
from domain.identifiers import ClusterId, MachineId, WorkloadId
from domain.placement import AttemptKey
from domain.reservation import Reservation
from services.clock import SystemClock
from services.database import (
    cancellation_store,
    gang_reservation_store,
    lease_store,
)
from services.database.engine import Database
from services.database.lease_store import LeaseLost
from services.global_scheduler.declaring_lost import declare_lost
from services.regional_scheduler.lost_regions import declare_region_lost
from services.regional_scheduler.reserving import Reserving
from tests.database.proxies import counting_proxy
from tests.regional_scheduler_service.reserving_world import (
    EAST,
    GANG,
    WEST,
    World,
    in_world,
    lease_of,
    region_of,
    session,
    until_reserved,
)
from topmast.v1.global_scheduler_pb2 import DeclareLostRequest


def test_machines_are_kept_for_a_gang_over_a_restart_until_it_starts(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        kept = await world.kept()
        assert kept["gang"].machines == (MachineId("east-0"), MachineId("east-1"))
        assert (kept["gang"].made_s, kept["gang"].expected_start_s) == (200.0, 2_000.0)
        # The region's scheduler starts anew.
        world.regions = [await session(world.database, EAST, world.clock)]
        assert world.regions[0].memory.inventory.reserved.all == (kept["gang"],)
        (east,) = world.regions
        east.end("a")
        world.clock.advance_to(1_050.0)
        await world.submit("long", run_s=5_000.0)
        await world.submit("short", run_s=800.0)
        await world.at(1_060.0)
        assert east.running == {"b", "short"}
        assert (
            "kept for a gang that has waited for longer, expected to start at 1970-01-01 00:33 UTC"
            in await world.reason("long")
        )
        assert await world.kept() == kept
        east.end("short")
        east.end("b")
        await world.at(2_000.0)
        assert east.running == {"gang"}
        assert await world.kept() == {}
        assert not east.memory.inventory.reserved
        assert await world.told() == [
            (200.0, "reserved", "gang", "east", None),
            (2_000.0, "reservation_ended", "gang", "east", "started"),
        ]

    in_world(database_url, scenario)


def test_without_the_setting_what_comes_later_takes_the_machine_and_nothing_is_asked(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        (east,) = world.regions
        east.end("a")
        world.clock.advance_to(1_050.0)
        await world.submit("long", run_s=5_000.0)
        await world.at(1_060.0)
        assert east.running == {"b", "long"}
        assert (await world.kept(), await world.told()) == ({}, [])
        async with counting_proxy(database_url) as proxy, Database(proxy.url) as database:
            reserving = Reserving(database, await lease_of(database, EAST), east.memory, world.clock, None)
            await reserving.look(0.0)  # what an earlier setting may have left
            before = proxy.so_far()
            await reserving.look(1_000.0)
            assert proxy.since(before) == 0

    in_world(database_url, scenario, rule=None)


def test_a_cancelled_gang_has_nothing_kept_and_others_start_at_once(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        (east,) = world.regions
        east.end("a")
        world.clock.advance_to(210.0)
        await world.submit("long", run_s=5_000.0)
        await world.at(210.0)
        assert east.running == {"b"}
        await world.database.run(lambda connection: cancellation_store.cancel(connection, GANG, "not wanted", 220.0))
        # Before it looks at its reservations again: that only a gang that waits needs.
        await world.look()
        assert await world.kept() == {}
        await world.at(221.0)
        assert east.running == {"b", "long"}
        assert [event[1:] for event in await world.told()][-1] == ("reservation_ended", "gang", "east", "not_queued")

    in_world(database_url, scenario)


def test_settings_that_keep_nothing_end_what_earlier_ones_have_left(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        world.regions = [await session(world.database, EAST, world.clock, None)]
        assert not world.regions[0].memory.inventory.reserved
        await world.look()
        assert await world.kept() == {}
        assert [event[1:] for event in await world.told()][-1] == ("reservation_ended", "gang", "east", "switched_off")

    in_world(database_url, scenario)


def test_a_lost_machine_ends_it_and_what_can_not_start_gets_none_and_it_is_said_why(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        world.regions[0].memory.inventory.set_machine_state(MachineId("east-1"), MachineState.DOWN)
        with capture_logs() as logs:
            await world.at(300.0)
        assert await world.kept() == {}
        assert (await world.told())[-1] == (300.0, "reservation_ended", "gang", "east", "machine_lost")
        (said,) = [log for log in logs if log["event"] == "no machines are kept"]
        assert said["workload"] == "gang"
        assert "2 tasks" in said["reason"]

    in_world(database_url, scenario)


def test_a_gang_that_the_region_could_never_host_gets_none(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.submit("a")
        await world.submit("gang", tasks=3)
        await world.at(0.0)
        await world.at(5_000.0)
        assert (await world.kept(), await world.told()) == ({}, [])

    in_world(database_url, scenario)


def test_of_two_regions_the_sooner_one_keeps_machines_and_takes_over_from_a_later_one(database_url: str) -> None:
    async def scenario(world: World) -> None:
        east, west = world.regions
        for region, run_s in ((EAST, 9_000.0), (WEST, 20_000.0)):
            await world.submit(f"{region}-a", run_s=run_s, region=region)
            await world.submit(f"{region}-b", run_s=run_s, region=region)
        await world.at(0.0)
        await world.submit("gang", tasks=2)
        await world.at(10.0)
        world.clock.advance_to(200.0)
        await west.reserving.look(1_000.0)
        assert {name: one.region for name, one in (await world.kept()).items()} == {"gang": WEST}
        # Another region that looks first after that was made has machines earlier.
        world.clock.advance_to(240.0)
        await east.reserving.look(1_000.0)
        assert {name: one.region for name, one in (await world.kept()).items()} == {"gang": EAST}
        await west.reserving.look(2_000.0)
        assert not west.memory.inventory.reserved
        assert {name: one.region for name, one in (await world.kept()).items()} == {"gang": EAST}
        assert await world.told() == [
            (200.0, "reserved", "gang", "west", None),
            (240.0, "reservation_ended", "gang", "west", "sooner_elsewhere"),
            (240.0, "reserved", "gang", "east", None),
        ]

    in_world(database_url, scenario, (region_of(EAST), region_of(WEST)))


def test_what_a_region_that_is_not_served_keeps_stands_in_nobodys_way(database_url: str) -> None:
    async def scenario(world: World) -> None:
        for region in (EAST, WEST):
            await world.submit(f"{region}-a", region=region)
            await world.submit(f"{region}-b", region=region)
        await world.at(0.0)
        await world.submit("gang", tasks=2)
        await world.at(10.0)
        east, west = world.regions
        world.clock.advance_to(200.0)
        await west.reserving.look(1_000.0)
        async with world.database.transaction() as connection:
            await connection.execute(
                "UPDATE leases SET expires_at = clock_timestamp() - interval '1 hour' WHERE name = %s",
                (f"{lease_store.REGIONAL_PREFIX}{WEST}",),
            )
        await east.reserving.look(1_000.0)
        assert {name: one.region for name, one in (await world.kept()).items()} == {"gang": EAST}
        assert (200.0, "reservation_ended", "gang", "west", "machine_lost") in await world.told()

    in_world(database_url, scenario, (region_of(EAST), region_of(WEST)))


def test_a_region_that_is_lost_keeps_nothing(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        async with world.database.transaction() as connection:
            await declare_region_lost(connection, EAST, "nobody serves it", 900.0)
        assert await world.kept() == {}
        assert (await world.told())[-1] == (900.0, "reservation_ended", "gang", "east", "machine_lost")

    in_world(database_url, scenario)


def test_a_region_without_a_scheduler_that_an_operator_declares_lost_keeps_nothing(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        async with world.database.transaction() as connection:
            await connection.execute("UPDATE leases SET expires_at = clock_timestamp() WHERE name LIKE 'regional/%%'")
            await declare_lost(connection, DeclareLostRequest(region=EAST, yes=True), SystemClock())
        assert await world.kept() == {}
        assert (await world.told())[-1][1:] == ("reservation_ended", "gang", "east", "machine_lost")

    in_world(database_url, scenario)


def test_one_gang_never_has_machines_in_two_regions_however_they_come_together(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        made = (await world.kept())["gang"]
        elsewhere = replace(made, region=WEST, clusters=(ClusterId("west-a"),), made_s=201.0)

        async def make(one: Reservation, instead_of: Reservation | None) -> bool:
            return await world.database.run(lambda connection: gang_reservation_store.make(connection, one, instead_of))

        # Who had read that there is none, or an older one, comes too late.
        assert not await make(elsewhere, None)
        assert not await make(elsewhere, replace(made, made_s=100.0))
        assert await world.kept() == {"gang": made}
        assert await make(elsewhere, made)
        assert await world.kept() == {"gang": elsewhere}
        # And who does not wait any more gets none.
        await world.database.run(lambda connection: cancellation_store.cancel(connection, GANG, "not wanted", 220.0))
        assert not await make(made, elsewhere)

    in_world(database_url, scenario)


def test_a_gang_that_has_started_and_waits_again_has_spent_it(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        async with world.database.transaction() as connection:
            # It started somewhere at 210, and came back to the queue at 220.
            await connection.execute("UPDATE queue_entries SET queued_since_s = 220 WHERE workload = %s", (GANG,))
            await connection.execute(
                """INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota, gpus, cpus,
                                         charges, dispatched_s, ended_s, progress_at_start, progress, checkpoint_progress)
                   VALUES (%s, 1, 'ads', 'west', 'ENDED', 3, 0, false, 8, 2, '{}', 210, 220, 0, 0, 0)""",
                (GANG,),
            )
        world.clock.advance_to(225.0)
        await world.look()
        assert await world.kept() == {}
        assert (await world.told())[-1] == (225.0, "reservation_ended", "gang", "east", "started")

    in_world(database_url, scenario)


def test_when_a_gang_is_cancelled_another_of_its_kind_gets_the_machines_and_starts_on_them(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        world.clock.advance_to(210.0)
        await world.submit("alike", tasks=2)
        await world.at(400.0)
        # All there is, is kept for the first one: behind it there is no end that anybody could wait for.
        assert [*await world.kept()] == ["gang"]
        await world.database.run(lambda connection: cancellation_store.cancel(connection, GANG, "not wanted", 410.0))
        await world.at(460.0)
        assert [*await world.kept()] == ["alike"]
        (east,) = world.regions
        east.end("a")
        world.clock.advance_to(1_010.0)
        await world.submit("third", tasks=2)
        await world.submit("long", run_s=5_000.0)
        await world.at(1_060.0)
        assert east.running == {"b"}
        east.end("b")
        await world.at(2_000.0)
        assert east.running == {"alike"}
        assert [*await world.kept()] == ["third"]

    in_world(database_url, scenario)


def test_a_session_whose_lease_is_gone_writes_nothing(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await world.submit("a")
        await world.submit("b")
        await world.at(0.0)
        world.clock.advance_to(10.0)
        await world.submit("gang", tasks=2)
        await world.at(60.0)
        (latecomer,) = world.regions
        await lease_of(world.database, EAST)
        world.clock.advance_to(200.0)
        with pytest.raises(LeaseLost):
            await latecomer.reserving.look(1_000.0)
        assert await world.kept() == {}
        assert not latecomer.memory.inventory.reserved

    in_world(database_url, scenario)


def test_a_session_that_begins_after_the_gang_has_started_keeps_nothing_for_it(database_url: str) -> None:
    async def scenario(world: World) -> None:
        await until_reserved(world)
        (east,) = world.regions
        kept = east.memory.inventory.reserved.all
        for name in ("a", "b"):
            east.end(name)
        async with world.database.transaction() as connection:
            await connection.execute("UPDATE attempts SET state = 'ENDED', ended_s = 900")
        world.clock.advance_to(2_000.0)
        async with world.database.transaction() as connection:
            await connection.execute(
                "INSERT INTO scan_passes (now_s, entries, changed, reclassified) VALUES (2000, 1, 0, 0)"
            )
        while await east.step():
            pass
        assert east.running == {GANG}
        # It ends before the reservation was looked at.
        after = await session(world.database, EAST, world.clock)
        assert after.memory.inventory.reserved.all == kept
        (attempt,) = after.memory.live
        assert after.memory.inventory.holding(attempt.key) is not None
        assert attempt.key == AttemptKey(GANG, attempt.key.attempt)
        binding = after.memory.inventory.reserved.binding(
            WorkloadId("other"), attempt.specification, attempt.standing, 2_000.0
        )
        assert binding == ()

    in_world(database_url, scenario)
