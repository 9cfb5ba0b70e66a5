"""Tiers of this version work beside tables of the next one, which has only added to them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from services.database import migrations_runner
from tests.live.running import LiveRun, in_live_service
from tests.live.world import Mix, workloads

_COUNT = 30
_TABLES = """SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
                AND relname <> 'alembic_version' ORDER BY relname"""


def test_columns_and_tables_of_the_next_version_disturb_nobody(
    database_url: str, tmp_path: Path, generator: np.random.Generator
) -> None:
    with psycopg.connect(database_url) as connection:
        for (table,) in connection.execute(_TABLES).fetchall():
            # At its end, as every column that is added; with and without a value that is given by itself.
            connection.execute(
                sql.SQL("ALTER TABLE {} ADD of_the_next_version TEXT, ADD given BIGINT NOT NULL DEFAULT 1").format(
                    sql.Identifier(table)
                )
            )
        connection.execute("CREATE TABLE of_the_next_version (name TEXT PRIMARY KEY)")
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    migrations_runner.require_tables(database_url)

    async def scenario(run: LiveRun) -> None:
        await run.submit(workloads(_COUNT, generator, Mix()))
        await run.follow(until=lambda event: event.event == "started")
        await run.service.stop("regional/east")
        await run.service.start("regional/east")
        await run.follow()
        run.check()
        await run.check_nothing_is_left()

    in_live_service(database_url, tmp_path, scenario)
