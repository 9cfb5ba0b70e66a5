"""Tiers that are far from each other: whoever asks the database where another one can be called is told a way that takes long."""

from __future__ import annotations

import psycopg

from benchmarks.delayed_network import DelayedNetwork
from domain.identifiers import RegionId
from services.database.engine import Database
from services.database.lease_store import REGIONAL_PREFIX, fence_regions, list_leases

_SAY_THE_LONG_WAY = """
    CREATE TABLE long_ways (near text PRIMARY KEY, far text NOT NULL);
    CREATE FUNCTION say_the_long_way() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        NEW.address := coalesce((SELECT far FROM long_ways WHERE near = NEW.address), NEW.address);
        RETURN NEW;
    END $$;
    CREATE TRIGGER say_the_long_way BEFORE INSERT OR UPDATE ON leases
        FOR EACH ROW EXECUTE FUNCTION say_the_long_way()"""


async def move_tiers_apart(database_url: str, network: DelayedNetwork) -> None:
    """From here on the tiers that hold leases call each other through the network; the regions begin new sessions for that.

    Once for a database, when all tiers are there. Clients that know an address already keep it.
    """
    async with Database(database_url) as database:
        async with database.transaction() as connection:
            leases = await list_leases(connection)
        # One process may hold several leases at one address.
        ports = network.way_to({lease.address: lease.address for lease in leases})
        async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
            await connection.execute(_SAY_THE_LONG_WAY)
            for near, port in ports.items():
                await connection.execute("INSERT INTO long_ways VALUES (%s, %s)", (near, f"127.0.0.1:{port}"))
            await connection.execute("UPDATE leases SET address = address")
        regions = [
            lease.name.removeprefix(REGIONAL_PREFIX) for lease in leases if lease.name.startswith(REGIONAL_PREFIX)
        ]
        async with database.transaction() as connection:
            await fence_regions(connection, [RegionId(region) for region in regions])
