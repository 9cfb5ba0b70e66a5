import asyncio
from functools import partial

import pytest

from domain.fleet import Cluster, Fleet, Region
from domain.identifiers import ClusterId, RegionId
from services.database import fleet_store, lease_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.lease_store import IssuedFence, Lease, LeaseLost
from services.security.secret_values import hash_of
from tests.database.small_world import until_somebody_waits


async def _acquire(
    connection: AnyConnection, holder: str, name: str = "regional/east", duration_s: float = 60.0
) -> Lease | None:
    return await lease_store.acquire(connection, name, holder, f"{holder}:1", 17, duration_s)


def _regions(*names: str) -> Fleet:
    return Fleet(tuple(Region(RegionId(name), ()) for name in names))


async def _expire(connection: AnyConnection) -> None:
    await connection.execute("UPDATE leases SET expires_at = clock_timestamp() - interval '1 ms'")


def test_one_holder_at_a_time_with_growing_tokens(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            first = await database.run(lambda connection: _acquire(connection, "one"))
            assert first == Lease("regional/east", "one", 1)
            assert await database.run(lambda connection: _acquire(connection, "two")) is None
            anew = await database.run(lambda connection: _acquire(connection, "one"))
            assert anew == Lease("regional/east", "one", 2)
            assert not await database.run(lambda connection: lease_store.renew(connection, first, 60.0))
            await database.run(_expire)
            second = await database.run(lambda connection: _acquire(connection, "two"))
            assert second == Lease("regional/east", "two", 3)
            assert not await database.run(lambda connection: lease_store.renew(connection, anew, 60.0))
            assert await database.run(lambda connection: lease_store.renew(connection, second, 60.0))

    asyncio.run(scenario())


def test_released_lease_is_free_at_once_and_its_token_grows_on(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            first = await database.run(lambda connection: _acquire(connection, "one"))
            assert first is not None
            await database.run(lambda connection: lease_store.release(connection, first))
            assert await database.run(lambda connection: lease_store.address(connection, first.name)) is None
            second = await database.run(lambda connection: _acquire(connection, "two"))
            assert second is not None
            assert second.token == 2
            await database.run(lambda connection: lease_store.release(connection, first))
            assert await database.run(lambda connection: lease_store.address(connection, first.name)) == "two:1"

    asyncio.run(scenario())


def test_addresses_and_live_regions(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            for name in ("regional/west", "global", "cluster/east-a", "regional/east", "regional/gone"):
                await database.run(partial(_acquire, holder="me", name=name))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, _regions("east", "west", "gone")))
            async with database.transaction() as connection:
                await connection.execute(
                    "UPDATE leases SET expires_at = clock_timestamp() - interval '1 ms' WHERE name = 'regional/gone'"
                )
                assert await lease_store.live_regions(connection) == (RegionId("east"), RegionId("west"))
                schedulers = await lease_store.live_regional_schedulers(connection)
                assert [one.region for one in schedulers] == ["east", "west"]
                assert await lease_store.address(connection, "regional/gone") is None
                assert await lease_store.address(connection, "cluster/east-a") == "me:1"
                records = await lease_store.list_leases(connection)
            assert [(record.name, record.live) for record in records] == [
                ("cluster/east-a", True),
                ("global", True),
                ("regional/east", True),
                ("regional/gone", False),
                ("regional/west", True),
            ]
            assert (records[0].process_id, records[0].token) == (17, 1)

    asyncio.run(scenario())


def test_a_region_that_was_taken_out_of_the_fleet_is_none_however_long_it_holds_its_lease(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            for name in ("regional/west", "regional/east"):
                await database.run(partial(_acquire, holder="me", name=name))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, _regions("east", "west")))
            await database.run(lambda connection: fleet_store.apply_fleet(connection, _regions("east")))
            async with database.transaction() as connection:
                assert await lease_store.live_regions(connection) == (RegionId("east"),)
                assert [one.region for one in await lease_store.live_regional_schedulers(connection)] == ["east"]

    asyncio.run(scenario())


def test_writes_in_the_name_of_an_older_lease_are_refused(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            first = await database.run(lambda connection: _acquire(connection, "one"))
            assert first is not None
            await database.run(lambda connection: lease_store.assert_held(connection, first))
            await database.run(_expire)
            with pytest.raises(LeaseLost, match="token 1"):
                await database.run(lambda connection: lease_store.assert_held(connection, first))
            await database.run(lambda connection: _acquire(connection, "two"))
            with pytest.raises(LeaseLost):
                await database.run(lambda connection: lease_store.assert_held(connection, first))

    asyncio.run(scenario())


def test_lease_is_not_taken_away_during_a_transaction_in_its_name(database_url: str) -> None:
    """1. The holder begins to write. 2. Another process fences it off. 3. That waits until the holder has written."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            held = await database.run(lambda connection: _acquire(connection, "one"))
            assert held is not None
            async with database.transaction() as writing:
                await lease_store.assert_held(writing, held)
                fencing = asyncio.create_task(
                    database.run(lambda connection: lease_store.fence_regions(connection, [RegionId("east")]))
                )
                await until_somebody_waits(database)
                await lease_store.assert_held(writing, held)
            await fencing
            with pytest.raises(LeaseLost):
                await database.run(lambda connection: lease_store.assert_held(connection, held))

    asyncio.run(scenario())


def test_fenced_region_must_acquire_its_lease_anew(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            held = await database.run(lambda connection: _acquire(connection, "one"))
            other = await database.run(lambda connection: _acquire(connection, "one", "regional/west"))
            assert held is not None
            assert other is not None
            await database.run(lambda connection: lease_store.fence_regions(connection, [RegionId("east")]))
            with pytest.raises(LeaseLost):
                await database.run(lambda connection: lease_store.assert_held(connection, held))
            assert not await database.run(lambda connection: lease_store.renew(connection, held, 60.0))
            await database.run(lambda connection: lease_store.assert_held(connection, other))
            anew = await database.run(lambda connection: _acquire(connection, "one"))
            assert anew == Lease("regional/east", "one", 3)

    asyncio.run(scenario())


def test_each_lease_has_a_secret_of_its_own_of_which_only_a_hash_is_stored(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=_one_cluster()))
            first = await database.run(lambda connection: _acquire(connection, "one"))
            anew = await database.run(lambda connection: _acquire(connection, "one"))
            assert first is not None
            assert anew is not None
            assert len(anew.secret) >= 43, "256 bits"
            assert first.secret != anew.secret
            assert anew.secret not in repr(anew)
            assert await database.run(_issued) == IssuedFence(2, hash_of(anew.secret))
            stored = await database.run(_everything)
            assert anew.secret not in stored
            # Somebody else counts it on: nobody has the secret of that number.
            await database.run(partial(lease_store.fence_regions, regions=[RegionId("east")]))
            between = await database.run(_issued)
            assert (between.token, between.secret_hash is None) == (3, False)
            assert between.secret_hash != hash_of(anew.secret)

    asyncio.run(scenario())


def test_a_lease_given_by_a_program_that_knows_no_secrets_has_none(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=_one_cluster()))
            await database.run(lambda connection: _acquire(connection, "one"))
            await database.run(_count_on)
            assert await database.run(_issued) == IssuedFence(2, None)

    asyncio.run(scenario())


def _one_cluster() -> Fleet:
    return Fleet((Region(RegionId("east"), (Cluster(ClusterId("east-a"), ()),)),))


async def _issued(connection: AnyConnection) -> IssuedFence:
    return await lease_store.newest_regional_fence(connection, ClusterId("east-a"))


async def _everything(connection: AnyConnection) -> str:
    return str(await (await connection.execute("SELECT * FROM leases")).fetchall())


async def _count_on(connection: AnyConnection) -> None:
    await connection.execute("UPDATE leases SET token = token + 1, holder = 'of the version before'")
