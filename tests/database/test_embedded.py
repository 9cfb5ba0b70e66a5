import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from services.database.embedded import (
    EmbeddedLayout,
    EmbeddedServerFailed,
    answers,
    is_running,
    is_supervised,
    start_embedded,
    stop_embedded,
    supervisor_process_id,
)
from services.database.server_owner import choose_owner, identity
from services.database.server_processes import find_server_processes, read_postmaster_id
from services.database.supervisor import MAJOR_VERSION, SETTINGS

pytestmark = pytest.mark.live

_QUICK = ["fsync=off", "shared_buffers=16MB"]


_START_AND_STAY = """
import signal, sys
from pathlib import Path
from services.database.embedded import start_embedded
start_embedded(Path(sys.argv[1]), settings=["fsync=off"], stop_with_us=True)
print("started", flush=True)
signal.pause()
"""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A home so deep that no socket fits into it, below folders that no other user may enter; one for the module."""
    top = Path(tempfile.mkdtemp(prefix="topmast-deep-"))
    deep = top / ("d" * 60) / ("e" * 60) / "home"
    deep.mkdir(parents=True)
    for folder in (deep.parent, deep.parent.parent):
        folder.chmod(0o700)
    try:
        yield deep
    finally:
        stop_embedded(deep)
        shutil.rmtree(EmbeddedLayout.of(deep).socket_folder, ignore_errors=True)
        shutil.rmtree(top)


@pytest.fixture
def url(home: Path) -> str:
    """The server runs; it may have been stopped, or left in any state, by the test before."""
    return start_embedded(home, settings=_QUICK, stop_with_us=True)


def _execute(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def _wait_for_new_postmaster(home: Path, url: str, old: int | None) -> None:
    while read_postmaster_id(EmbeddedLayout.of(home).data) in {old, None} or not answers(url):
        assert is_supervised(EmbeddedLayout.of(home))


def test_server_is_durable_private_and_ours(home: Path, url: str) -> None:
    layout = EmbeddedLayout.of(home)
    assert "fsync=on" in SETTINGS
    assert "synchronous_commit=on" in SETTINGS
    assert _execute(url, "SELECT current_database(), current_user") == [("topmast", "postgres")]
    assert _execute(url, "SHOW listen_addresses") == [("",)]
    assert _execute(url, "SHOW server_encoding") == [("UTF8",)]
    assert _execute(url, "SELECT 'a' < 'B', 'a' > 'B'") == [(False, True)]  # code points, as in Python
    assert len(os.fsencode(layout.socket_folder / ".s.PGSQL.5432")) <= 107
    assert stat.S_IMODE(layout.socket_folder.stat().st_mode) == 0o700
    assert psutil.Process(read_postmaster_id(layout.data)).uids().real != 0
    assert read_postmaster_id(layout.data) in [process.pid for process in find_server_processes(layout.data)]


def test_start_is_idempotent_also_at_the_same_time(home: Path) -> None:
    stop_embedded(home)
    urls: list[str] = []
    threads = [
        threading.Thread(target=lambda: urls.append(start_embedded(home, settings=_QUICK, stop_with_us=True)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(urls) == 3
    assert len(set(urls)) == 1
    supervisor = supervisor_process_id(EmbeddedLayout.of(home))
    assert start_embedded(home) == urls[0]
    assert supervisor_process_id(EmbeddedLayout.of(home)) == supervisor


def test_stop_leaves_nothing_running_and_the_data_stays(home: Path, url: str) -> None:
    _execute(url, "CREATE TABLE IF NOT EXISTS kept (number int); ")
    _execute(url, "INSERT INTO kept VALUES (7)")
    assert stop_embedded(home)
    assert not is_running(home)
    assert not answers(url)
    assert not EmbeddedLayout.of(home).ready.exists()
    assert not stop_embedded(home)
    again = start_embedded(home, settings=_QUICK, stop_with_us=True)
    assert again == url
    assert _execute(url, "SELECT number FROM kept") == [(7,)]
    _execute(url, "DROP TABLE kept")


def test_killed_server_comes_back_although_a_backend_is_still_busy(home: Path, url: str) -> None:
    """The orphan does not look up from its work to see that its server is gone, and holds the old shared memory."""
    busy = psycopg.connect(url, autocommit=True)
    worker = threading.Thread(target=_run_for_ever, args=(busy,))
    worker.start()
    while _execute(url, "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'DO%'") == []:
        assert worker.is_alive()
    old = read_postmaster_id(EmbeddedLayout.of(home).data)
    assert old is not None
    os.kill(old, signal.SIGKILL)
    _wait_for_new_postmaster(home, url, old)
    worker.join()
    busy.close()
    assert _execute(url, "SELECT 1") == [(1,)]


def _run_for_ever(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(psycopg.OperationalError):
        connection.execute("DO $$ BEGIN LOOP NULL; END LOOP; END $$")


def test_server_outlives_its_supervisor_and_gets_a_new_one(home: Path, url: str) -> None:
    layout = EmbeddedLayout.of(home)
    supervisor = supervisor_process_id(layout)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    while is_supervised(layout):
        pass
    assert _execute(url, "SELECT 1") == [(1,)]
    assert is_running(home)
    start_embedded(home, settings=_QUICK, stop_with_us=True)
    assert supervisor_process_id(layout) not in {supervisor, None}
    assert _execute(url, "SELECT 1") == [(1,)]


def test_server_whose_supervisor_was_killed_can_be_stopped(home: Path, url: str) -> None:
    assert answers(url)
    layout = EmbeddedLayout.of(home)
    supervisor = supervisor_process_id(layout)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    while is_supervised(layout):
        pass
    assert stop_embedded(home)
    assert not is_running(home)


def test_lock_files_that_name_another_program_do_not_keep_the_server_from_starting(home: Path, url: str) -> None:
    """After a crash its process id may belong to any process: here, to one of the server's own user."""
    layout = EmbeddedLayout.of(home)
    lock = (layout.data / "postmaster.pid").read_text().splitlines()
    owner = identity(choose_owner(layout.data))
    stop_embedded(home)
    with subprocess.Popen(
        ["sleep", "1000"], cwd="/", user=owner.user, group=owner.group, extra_groups=owner.extra_groups
    ) as other:
        try:
            left_behind = "\n".join([str(other.pid), *lock[1:]]) + "\n"
            for file in (layout.data / "postmaster.pid", layout.socket_folder / ".s.PGSQL.5432.lock"):
                file.write_text(left_behind)
            start_embedded(home, settings=_QUICK, stop_with_us=True)
            assert _execute(url, "SELECT 1") == [(1,)]
        finally:
            other.kill()


def test_half_made_data_is_made_anew(home: Path) -> None:
    stop_embedded(home)
    layout = EmbeddedLayout.of(home)
    shutil.rmtree(layout.data)
    (layout.folder / "data.unfinished").mkdir()
    (layout.folder / "data.unfinished" / "PG_VERSION").write_text(f"{MAJOR_VERSION}\n")
    url = start_embedded(home, settings=_QUICK, stop_with_us=True)
    assert _execute(url, "SELECT current_database()") == [("topmast",)]


def test_what_keeps_the_server_from_starting_is_reported(home: Path) -> None:
    stop_embedded(home)
    with pytest.raises(EmbeddedServerFailed, match="no_such_setting"):
        start_embedded(home, settings=["no_such_setting=1"], stop_with_us=True)
    assert not is_running(home)
    version = EmbeddedLayout.of(home).data / "PG_VERSION"
    version.write_text("14\n")
    try:
        with pytest.raises(EmbeddedServerFailed, match=r"written by PostgreSQL 14, and this is PostgreSQL 18"):
            start_embedded(home, stop_with_us=True)
    finally:
        version.write_text(f"{MAJOR_VERSION}\n")


def test_server_for_a_session_ends_with_it_however_it_ends(home: Path) -> None:
    stop_embedded(home)
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _START_AND_STAY,
            str(home),
        ],
        stdout=subprocess.PIPE,
    )
    with starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        assert is_running(home)
        starter.kill()
    while is_running(home):
        pass
    assert not answers(EmbeddedLayout.of(home).url())


def test_folder_of_somebody_else_is_not_used_for_the_socket(home: Path) -> None:
    """Any user may make a folder in /tmp first, to listen in our place: only root can set that up here."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a folder to another user")
    stop_embedded(home)
    folder = EmbeddedLayout.of(home).socket_folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chown(folder, 65533, 65533)
    try:
        with pytest.raises(EmbeddedServerFailed, match="belongs to someone else"):
            start_embedded(home, stop_with_us=True)
    finally:
        folder.rmdir()


def test_layout_keeps_the_socket_beside_the_data_when_it_fits() -> None:
    layout = EmbeddedLayout.of(Path("/srv/topmast"))
    assert layout.socket_folder == Path("/srv/topmast/postgres/socket")
    assert (
        layout.url("other name")
        == "postgresql://postgres@/other%20name?host=%2Fsrv%2Ftopmast%2Fpostgres%2Fsocket&port=5432"
        "&passfile=%2Fsrv%2Ftopmast%2Fpostgres%2Fpgpass"
    )


def test_server_that_is_stopped_right_after_others_started_it_stays_stopped(home: Path) -> None:
    """1. Three start it; one becomes its supervisor. 2. It is stopped. 3. No other takes the free place."""
    stop_embedded(home)
    threads = [
        threading.Thread(target=start_embedded, args=(home,), kwargs={"settings": _QUICK, "stop_with_us": True})
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stop_embedded(home)
    assert not is_running(home)


def test_without_its_password_nobody_is_let_in(home: Path, url: str) -> None:
    layout = EmbeddedLayout.of(home)
    assert stat.S_IMODE(layout.pass_file.stat().st_mode) == 0o600
    password = layout.pass_file.read_text().strip().rpartition(":")[2]
    assert len(password) >= 43, "256 bits"
    assert password not in url
    assert _execute(url, "SELECT rolpassword LIKE 'SCRAM-SHA-256%' FROM pg_authid WHERE rolname = 'postgres'") == [
        (True,)
    ]
    bare = url.partition("&passfile=")[0]
    for stranger in (f"{bare}&passfile=/dev/null", f"{bare}&passfile=/dev/null&password=guessed"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(stranger)
    assert _execute(f"{bare}&passfile=/dev/null&password={password}", "SELECT 1") == [(1,)]
    for log in (layout.supervisor_log, layout.server_log, layout.ready):
        assert password not in log.read_text()


@pytest.mark.parametrize("file_is_lost", [False, True], ids=["of the version before", "file lost"])
def test_a_home_without_a_password_gets_one_at_its_next_start(home: Path, url: str, file_is_lost: bool) -> None:
    layout = EmbeddedLayout.of(home)
    former = layout.pass_file.read_text()
    if not file_is_lost:
        _execute(url, "ALTER ROLE postgres PASSWORD NULL")
        (layout.data / "pg_hba.conf").write_text("local all all trust\nhost all all all reject\n")
    stop_embedded(home)
    layout.pass_file.unlink()
    assert start_embedded(home, settings=_QUICK, stop_with_us=True) == url
    assert layout.pass_file.read_text() != former
    assert _execute(url, "SELECT 1") == [(1,)]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"{url.partition('&passfile=')[0]}&passfile=/dev/null")
