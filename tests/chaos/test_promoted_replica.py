"""A pair of PostgreSQL servers: the primary is killed, its replica promoted, and every tier goes on with that."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from services.database import migrations_runner
from services.database.embedded import EmbeddedLayout, start_embedded, stop_embedded, supervisor_process_id
from services.database.server_owner import choose_owner, let_through, make_private_folder, run_as
from services.database.server_processes import find_server_processes
from services.database.supervisor import find_programs
from tests.live.running import LiveRun, in_live_service
from tests.live.world import Mix, workloads

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

_COUNT = 30
_RULES = "pg_hba.conf"


@pytest.fixture
def homes() -> Iterator[tuple[Path, Path]]:
    """Of the primary and of the replica; whatever runs in them at the end is ended."""
    folder = Path(tempfile.mkdtemp(prefix="topmast-pair-"))
    folder.chmod(0o755)
    both = folder / "primary", folder / "replica"
    try:
        for home in both:
            home.mkdir()
        yield both
    finally:
        for home in both:
            stop_embedded(home)
        shutil.rmtree(folder)


def test_every_tier_follows_to_the_promoted_replica(
    homes: tuple[Path, Path], tmp_path: Path, generator: np.random.Generator
) -> None:
    primary, replica = (EmbeddedLayout.of(home) for home in homes)
    start_embedded(homes[0])
    migrations_runner.upgrade(primary.url())
    rules = _let_replicate(primary)
    _copy(primary, replica)
    (replica.data / _RULES).write_text(rules, encoding="utf-8")
    start_embedded(homes[1])
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        # What was acknowledged is on both.
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
    both = f"{replica.socket_folder},{primary.socket_folder}"
    # The replica has the primary's password, which is in the data.
    url = f"postgresql://postgres@/topmast?host={both}&port=5432,5432&passfile={primary.pass_file}"

    async def scenario(run: LiveRun) -> None:
        await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
        await run.follow(until=lambda event: event.event == "started")
        _kill(primary)
        with psycopg.connect(replica.url(), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
        await run.submit(workloads(_COUNT, generator, Mix(shortest_s=300.0)))
        await run.follow()
        run.check()
        await run.check_nothing_is_left()
        with psycopg.connect(replica.url()) as connection:
            assert connection.execute("SELECT count(*) FROM workloads").fetchone() == (2 * _COUNT,)

    in_live_service(url, tmp_path, scenario)


def _let_replicate(primary: EmbeddedLayout) -> str:
    """By itself an embedded server is copied by nobody. Returns its own rules, by which it would start."""
    rules = (primary.data / _RULES).read_text(encoding="utf-8")
    (primary.data / _RULES).write_text(f"{rules}local replication all scram-sha-256\n", encoding="utf-8")
    with psycopg.connect(primary.url(), autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
    return rules


def _copy(primary: EmbeddedLayout, replica: EmbeddedLayout) -> None:
    """Makes the replica's data, which follows the primary's from then on."""
    owner = choose_owner(primary.data)
    replica.folder.mkdir()
    let_through(replica.folder, owner)
    make_private_folder(replica.data, owner)
    shutil.copy2(primary.pass_file, replica.pass_file)
    # The server reads it too, as another user.
    given = replica.folder / "of_the_primary"
    shutil.copy2(primary.pass_file, given)
    os.chown(given, owner.user_id, owner.group_id)
    source = f"host={primary.socket_folder} port=5432 user=postgres passfile={given}"
    # By itself it waits for a checkpoint that takes its time.
    command: list[str | Path] = [find_programs() / "pg_basebackup", "--checkpoint", "fast", "--write-recovery-conf"]
    command += ["--pgdata", replica.data, "--dbname", source]
    copied = run_as(owner, command, cwd=replica.data)
    assert copied.returncode == 0, copied.stderr


def _kill(layout: EmbeddedLayout) -> None:
    """The server and what would start it again, at once."""
    supervisor = supervisor_process_id(layout)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    for process in find_server_processes(layout.data):
        process.kill()
