import asyncio
from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from domain.identifiers import TenantId
from domain.tenant import quota_limits
from services.database import quota_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from tests.database.small_world import ADS, TENANTS, VISION
from tests.examples import examples

_LIMITS = {tenant.tenant: quota_limits(tenant) for tenant in TENANTS}

Charges = tuple[TenantId, dict[str, int]]


@dataclass(frozen=True)
class QuotaStep:
    """One region's transaction: it charges some, gives back some of what it got before, and may then fail."""

    wanted: tuple[Charges, ...]
    returns: int
    fails: bool


async def _in_use(connection: AnyConnection) -> dict[tuple[str, str], int]:
    cursor = await connection.execute("SELECT tenant, bucket, amount FROM quota_use")
    return {(row[0], row[1]): row[2] for row in await cursor.fetchall()}


def _limit(tenant: TenantId, bucket: str) -> float:
    return _LIMITS[tenant].get(bucket, float("inf") if bucket == "cpus" else 0)


def test_charges_what_fits_one_after_the_other(database_url: str) -> None:
    wanted: list[Charges] = [
        (ADS, {"A100": 10}),
        (ADS, {"A100": 10}),
        (ADS, {"A100": 6, "cpus": 60_000}),
        (ADS, {"any": 1, "cpus": 50_000}),
        (VISION, {"any": 8, "cpus": 10**9}),
        (VISION, {"A100": 1}),
    ]

    async def scenario() -> None:
        async with Database(database_url) as database:
            fits = await database.run(lambda connection: quota_store.charge(connection, wanted, _LIMITS))
            assert fits == [True, False, True, False, True, False]
            await database.run(lambda connection: quota_store.release(connection, [(ADS, {"A100": 10})]))
            in_use = await database.run(_in_use)
            assert {bucket: amount for bucket, amount in in_use.items() if amount} == {
                (ADS, "A100"): 6,
                (ADS, "cpus"): 60_000,
                (VISION, "any"): 8,
                (VISION, "cpus"): 10**9,
            }

    asyncio.run(scenario())


_charges = st.tuples(
    st.sampled_from([ADS, VISION]),
    st.dictionaries(st.sampled_from(["A100", "any", "cpus"]), st.integers(1, 9), min_size=1, max_size=2),
)
_steps = st.lists(
    st.builds(QuotaStep, st.lists(_charges, max_size=3).map(tuple), st.integers(0, 2), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_steps, min_size=2, max_size=4))
def test_never_exceeds_a_quota_however_many_regions_dispatch_at_once(
    database_url: str, regions: list[list[QuotaStep]]
) -> None:
    """At every moment that can be seen, use is within quota; at the end it is exactly what was not given back."""

    async def region(database: Database, steps: list[QuotaStep]) -> list[Charges]:
        held: list[Charges] = []
        for step in steps:
            returned, kept = held[: step.returns], held[step.returns :]

            async def transaction(
                connection: AnyConnection, step: QuotaStep = step, returned: list[Charges] = returned
            ) -> list[bool]:
                await quota_store.release(connection, returned)
                fits = await quota_store.charge(connection, step.wanted, _LIMITS)
                _fail(step.fails)
                return fits

            try:
                fits = await database.run(transaction)
            except InterruptedError:
                continue
            held = kept + [charges for charges, fit in zip(step.wanted, fits, strict=True) if fit]
        return held

    async def watch(database: Database, done: asyncio.Event) -> int:
        looks = 0
        while not done.is_set() or looks == 0:
            for (tenant, bucket), amount in (await database.run(_in_use)).items():
                assert 0 <= amount <= _limit(TenantId(tenant), bucket)
            looks += 1
        return looks

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute("DELETE FROM quota_use")
            done = asyncio.Event()
            watching = asyncio.create_task(watch(database, done))
            held = await asyncio.gather(*(region(database, steps) for steps in regions))
            done.set()
            assert await watching > 0
            expected: dict[tuple[str, str], int] = {}
            for tenant, charges in (entry for mine in held for entry in mine):
                for bucket, amount in charges.items():
                    expected[tenant, bucket] = expected.get((tenant, bucket), 0) + amount
            in_use = await database.run(_in_use)
            assert {bucket: amount for bucket, amount in in_use.items() if amount} == expected

    asyncio.run(scenario())


def _fail(fails: bool) -> None:
    if fails:
        raise InterruptedError
