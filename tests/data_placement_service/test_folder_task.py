"""The process that reads and writes folders ends with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from pydantic import TypeAdapter

from services.data_placement.folder_task import FolderRequest
from services.database.warehouse_import import ImportChoices

_STARTER = """
import asyncio, sys
from pydantic import TypeAdapter
from services.data_placement.folder_task import FolderRequest, run_folder_task
asyncio.run(run_folder_task(TypeAdapter(FolderRequest).validate_json(sys.argv[1])))
"""
_PATIENCE_REAL_S = 240.0


def _write(folder: Path) -> None:
    texts = {
        "regions": "region,storage_bytes\neast,1000\n",
        "supply": "region,gpu_model,gpu_hours\neast,A100,24\n",
        "tables": "table,size_bytes,home\na.t,30,east\n",
        "jobs": "job,gpu_model\ntrain,A100\n",
        "reads": "job,table\ntrain,a.t\n",
    }
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)


def _until_it_waits(connection: psycopg.Connection) -> None:
    """Somebody else wants a lock that is held."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    for _ in range(10_000):
        if connection.execute(waits).fetchone() != (0,):
            return
        os.sched_yield()
        connection.execute("SELECT pg_sleep(0.01)")
    raise AssertionError("the import did not begin")


@pytest.mark.live
def test_an_import_whose_service_is_killed_changes_nothing(database_url: str, tmp_path: Path) -> None:
    _write(tmp_path / "in")
    request = FolderRequest(database_url, str(tmp_path / "in"), 7, ImportChoices())
    with psycopg.connect(database_url, autocommit=True) as looking, psycopg.connect(database_url) as holding:
        looking.execute("INSERT INTO regions (region, position) VALUES ('east', 0)")
        # The import stops in the middle, for somebody holds a table that it needs.
        holding.execute("LOCK TABLE data_staged_tables IN ACCESS SHARE MODE")
        arguments = [sys.executable, "-c", _STARTER, TypeAdapter(FolderRequest).dump_json(request).decode()]
        with subprocess.Popen(arguments) as service:
            _until_it_waits(looking)
            service.send_signal(signal.SIGKILL)
            service.wait(_PATIENCE_REAL_S)
        alive = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        holding.rollback()
        for _ in range(1_000):
            if looking.execute(alive).fetchone() == (0,):
                break
            looking.execute("SELECT pg_sleep(0.01)")
        others = """SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'
                       AND backend_type = 'client backend'"""
        for _ in range(1_000):
            if looking.execute(others).fetchone() == (0,):
                break
            looking.execute("SELECT pg_sleep(0.01)")
        assert looking.execute("SELECT count(*) FROM data_tables").fetchone() == (0,)
