"""Any statement of a round may fail, or lose its connection: a region that begins anew decides the same, and nothing twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from domain.identifiers import RegionId
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.errors import DatabaseUnavailable
from services.database.lease_store import REGIONAL_PREFIX
from tests.regional_scheduler.auction_worlds import WorldPlan
from tests.regional_scheduler_service.test_auctioneering import (
    AuctioningRegion,
    fates,
    fates_one_at_a_time,
    open_region,
    prepare,
)
from tests.regional_scheduler_service.test_interleavings import alike_regions, forget

WRITTEN = (
    "attempts",
    "auction_refusals",
    "auction_responses",
    "auction_rounds",
    "auction_walks",
    "awards",
    "events",
    "placements",
    "queue_entries",
    "quota_use",
    "workloads",
)
SERIALIZATION_FAILURE = "RAISE EXCEPTION 'others were in the way' USING ERRCODE = '40001'"
LOST_CONNECTION = "PERFORM pg_terminate_backend(pg_backend_pid())"
EVERY = 7
"""So many writes are passed over between two that fail: each of them is a world of its own."""
_BEYOND_ALL = 1_000_000


async def _prepare_failures(connection: AnyConnection, failure: str) -> None:
    """From now on the write fails before which the sequence `writes` comes to 0."""
    await connection.execute(f"CREATE SEQUENCE writes MINVALUE -{_BEYOND_ALL} START -{_BEYOND_ALL}")
    await connection.execute(
        f"""CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF nextval('writes') = 0 THEN {failure}; END IF; RETURN NULL; END $$"""
    )
    for table in WRITTEN:
        await connection.execute(
            f"""CREATE TRIGGER fail_once BEFORE INSERT OR UPDATE OR DELETE ON {table}
                FOR EACH STATEMENT EXECUTE FUNCTION fail_once()"""
        )


async def _hold_auctions(open_again: Callable[[int], Awaitable[AuctioningRegion]], count: int) -> int:
    """All regions in turn until nothing moves; one whose step fails begins anew. Returns how often that was so."""
    regions = [await open_again(number) for number in range(count)]
    failures, moved = 0, True
    while moved:
        moved = False
        for number in range(count):
            try:
                moved |= await regions[number].step()
            except DatabaseUnavailable:
                failures += 1
                moved = True
                regions[number] = await open_again(number)
    return failures


async def _check(connection: AnyConnection, plan: WorldPlan) -> None:
    assert await fates(connection, plan) == fates_one_at_a_time(plan)
    cursor = await connection.execute(
        """SELECT (SELECT count(*) FROM awards),
                  (SELECT coalesce(sum(amount), 0) FROM quota_use WHERE bucket <> 'cpus'),
                  (SELECT coalesce(sum((charges->>'any')::int), 0) FROM attempts WHERE ended_s IS NULL AND within_quota),
                  (SELECT count(*) FROM events WHERE event = 'dispatched') - (SELECT count(*) FROM attempts)"""
    )
    row = await cursor.fetchone()
    assert row is not None
    awards, in_use, charged, repeated = row
    assert (awards, in_use, repeated) == (0, charged, 0)


@pytest.mark.parametrize("failure", [SERIALIZATION_FAILURE, LOST_CONNECTION], ids=["conflict", "connection lost"])
def test_whichever_write_fails_the_same_is_decided(database_url: str, failure: str) -> None:
    plan = alike_regions()

    async def begin(connection: AnyConnection, number: int) -> None:
        await connection.execute("SELECT setval('writes', %s)", (-_BEYOND_ALL,))
        await forget(connection)
        await connection.execute("DELETE FROM leases")
        await prepare(connection, plan)
        await connection.execute("SELECT setval('writes', %s)", (-number - 1,))

    async def scenario() -> None:
        async with Database(database_url) as database:

            async def open_again(number: int) -> AuctioningRegion:
                region = RegionId(plan.regions[number])
                async with database.transaction() as connection:
                    await connection.execute(
                        "UPDATE leases SET expires_at = now() WHERE name = %s", (f"{REGIONAL_PREFIX}{region}",)
                    )
                return await open_region(database, region, window=2)

            async with database.transaction() as connection:
                await _prepare_failures(connection, failure)
            number, failures = 1, 1
            while failures:
                async with database.transaction() as connection:
                    await begin(connection, number)
                failures = await _hold_auctions(open_again, len(plan.regions))
                async with database.transaction() as connection:
                    await _check(connection, plan)
                number += EVERY
            assert number > 5 * EVERY, "writes of all kinds failed in their turn"

    asyncio.run(scenario())
