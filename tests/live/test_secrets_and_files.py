"""A password is in no argument, log, record or answer; and what a service leaves in its home is its owner's alone."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import psutil
import pytest
from psycopg import sql

from formats.fleet_file import dump_fleet
from formats.tenants_file import dump_tenants
from services.execution.task_environment import SERVICE_HOME_VARIABLE
from services.runtime.home import HomeLayout
from services.runtime.home_processes import processes_of
from services.runtime.host_options import HostOptions
from services.runtime.local import down, up
from services.security.home_tokens import home_token
from tests.conftest_postgres import SessionServer
from tests.live.world import FLEET, TENANTS
from topmast import Client

pytestmark = pytest.mark.live

_PASSWORD = "marked-password-0123456789"  # noqa: S105 - it is looked for
_CLI = (sys.executable, "-c", "from services.command_line.main import main; main()")
_OF_TASKS = ("checkpoints", "working_directories", "environments")
"""What tasks write has the mask of whoever started the service, in folders that nobody else enters."""


@pytest.fixture
def marked_url(postgres_server: SessionServer) -> Iterator[str]:
    """The URL of a database of its own, of a user with a password of its own, which is in it."""
    name = postgres_server.new_database()
    role = sql.Identifier(f"{name}_marked")
    postgres_server.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(role, sql.Literal(_PASSWORD)))
    try:
        folder = quote(str(postgres_server.layout.socket_folder), safe="")
        yield f"postgresql://{name}_marked:{_PASSWORD}@/{name}?host={folder}&port=5432"
    finally:
        postgres_server.drop_database(name)
        postgres_server.execute(sql.SQL("DROP ROLE {}").format(role))


@pytest.fixture
def home() -> Iterator[Path]:
    """Short, for sockets; as a former version left it: open, with something in it."""
    folder = Path(tempfile.mkdtemp(prefix="topmast-home-"))
    (folder / "logs").mkdir(mode=0o755)
    (folder / "logs" / "host.log").write_text("of a former run\n")
    for path in (folder, folder / "logs"):
        path.chmod(0o755)
    try:
        yield folder
    finally:
        down(folder, at_once=True)
        shutil.rmtree(folder)


def _own_mask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _processes(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(SERVICE_HOME_VARIABLE) == str(home):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _said_anywhere(home: Path, address: str) -> list[str]:
    """Where the password is to be read by others, or is told to anybody."""
    places: list[str] = []
    processes = _processes(home)
    assert len(processes) >= 5, "the watcher, the host, its tiers and Ray"
    processes += processes_of(home)  # Ray's workers, too, which write over their environment
    places += [f"arguments of {one.name()}" for one in processes if _PASSWORD in " ".join(one.cmdline())]
    files = [path for path in sorted(home.rglob("*")) if path.is_file()]
    places += [str(path) for path in files if _PASSWORD.encode() in path.read_bytes()]
    for command in (["status", "--json"], ["events", "--json"]):
        asked = subprocess.run(
            [*_CLI, *command],
            env={**os.environ, "TOPMAST_ADDRESS": address, "TOPMAST_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert asked.returncode == 0, asked.stderr
        if _PASSWORD in asked.stdout + asked.stderr:
            places.append(f"topmast {command[0]}")
    with Client(address, token=home_token(home)) as client:
        if any(_PASSWORD in json.dumps(event.as_json()) for event in client.events()):
            places.append("events")
    return places


def _open_to_others(home: Path) -> list[str]:
    """What of the home is neither closed nor of a task."""
    found = []
    ray = HomeLayout(home).ray_sessions
    for path in sorted([home, *home.rglob("*")]):
        status = path.lstat()
        below = path.relative_to(home).parts
        if stat.S_ISLNK(status.st_mode) or ray in (path, *path.parents) or (len(below) > 2 and below[0] in _OF_TASKS):
            continue
        allowed = 0o711 if stat.S_ISDIR(status.st_mode) else 0o700
        if stat.S_IMODE(status.st_mode) & ~allowed:
            found.append(f"{path} {stat.filemode(status.st_mode)}")
    return found


def test_no_password_is_told_and_no_file_is_open(marked_url: str, home: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(dump_fleet(FLEET), encoding="utf-8")
    tenants = tmp_path / "tenants.yaml"
    tenants.write_text(dump_tenants(TENANTS), encoding="utf-8")
    service = up(HostOptions(home=home, port=0, database_url=marked_url, fleet_file=fleet, tenants_file=tenants))
    (closed,) = service.mended
    assert closed == "others could read or write 3 files and folders of the home, and cannot any more"
    with Client(service.address, token=home_token(home)) as client:
        looks = ["sh", "-c", "umask; env; id; ls -ld $TOPMAST_CHECKPOINT_DIRECTORY"]
        submitted = client.submit(tenant="research", command=looks, gpus=1)
        workload = client.wait(submitted.workload)
        log = b"".join(chunk.chunk for chunk in client.logs(submitted.workload)).decode()
    assert workload.state == "COMPLETED", log
    # The task has the mask of whoever started the service, and nothing of the service's secrets.
    assert log.splitlines()[0] == f"{_own_mask():04o}"
    assert _PASSWORD not in log
    assert "TOPMAST_DATABASE_URL" not in log
    assert _said_anywhere(home, service.address) == []
    assert _open_to_others(home) == []
    # A watcher that is started by the host gets the options, too.
    (watcher,) = [process for process in _processes(home) if "services.runtime.host_watcher" in process.cmdline()]
    watcher.kill()
    psutil.wait_procs([watcher])
    while not (again := [one for one in _processes(home) if "services.runtime.host_watcher" in one.cmdline()]):
        assert psutil.pid_exists(service.process_id)
    assert _PASSWORD not in " ".join(again[0].cmdline())
