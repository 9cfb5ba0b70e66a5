"""The simulated table of leases does what PostgreSQL does with the same statements, in the same order."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import numpy as np

from services.database import lease_store
from services.database.engine import Database
from services.database.lease_store import Lease, LeaseLost
from tests.deterministic.lease_table import SimulatedConnection, SimulatedServer
from tests.deterministic.simulation import SimulatedWorld

_STEPS = 120
_HOLDERS = ("one", "two", "three")
_LONG_S, _OVER_S = 1_000.0, -1.0


async def _do(connection: Any, step: tuple[Any, ...], leases: dict[str, Lease]) -> object:
    """What the statement says; leases are remembered by holder, so that stale ones are tried too."""
    kind, name, holder, duration_s = step
    lease = leases.get(holder, Lease(name, holder, 1))
    match kind:
        case "acquire":
            found = await lease_store.acquire(connection, name, holder, f"at {holder}", 1, duration_s)
            if found is not None:
                leases[holder] = found
            return found
        case "renew":
            return await lease_store.renew(connection, lease, duration_s)
        case "release":
            await lease_store.release(connection, lease)
            return None
        case "held":
            try:
                await lease_store.assert_held(connection, lease)
            except LeaseLost:
                return "lost"
            return None
        case _:
            seen = await lease_store.look(connection, name)
            return None if seen is None else (seen.holder, seen.address, seen.left_s > 0.0)


def test_statements_of_leases_do_what_they_do_in_postgresql(database_url: str, generator: np.random.Generator) -> None:
    kinds = ("acquire", "acquire", "renew", "release", "held", "look")
    steps = [
        (
            str(generator.choice(kinds)),
            "global",
            str(generator.choice(_HOLDERS)),
            float(generator.choice([_LONG_S, _OVER_S])),
        )
        for _ in range(_STEPS)
    ]

    async def in_postgresql() -> list[object]:
        leases: dict[str, Lease] = {}
        async with Database(database_url) as database:
            return [await database.run(partial(_do, step=step, leases=leases)) for step in steps]

    async def simulated() -> list[object]:
        leases: dict[str, Lease] = {}
        server = SimulatedServer(SimulatedWorld(np.random.default_rng(1)))
        server.weather.latency_s = 0.0
        told = []
        for step in steps:
            connection = SimulatedConnection(server)
            told.append(await _do(connection, step, leases))
            await connection.commit()
        return told

    real = asyncio.run(in_postgresql())
    assert asyncio.run(simulated()) == real
    assert {"lost", True, False, None} <= {one for one in real if not isinstance(one, (Lease, tuple))}
