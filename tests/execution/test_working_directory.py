"""The working directory of an attempt on one machine, without Ray: made once, shared, removed, whatever dies meanwhile."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from services.execution.working_directory import NotPrepared, WorkingDirectory
from services.storage.package_folder import PackageFolder
from services.storage.stored_files import GivenUp
from tests.execution.orders import key
from tests.execution.stored_packages import project, stored

M0 = MachineId("m0")


def directory(folder: Path, attempt: AttemptKey | None = None, machine: MachineId = M0) -> WorkingDirectory:
    return WorkingDirectory(folder, attempt or key(), machine)


def prepare(one: WorkingDirectory, package: str, store: str) -> WorkingDirectory:
    one.prepare(package, store, threading.Event())
    return one


def test_tasks_on_one_machine_share_it_until_the_last_one_has_ended(tmp_path: Path) -> None:
    store, folder = f"file://{tmp_path / 'store'}", tmp_path / "machine"
    package = stored(project(tmp_path / "project", train_py="print(1)", run_sh="true"), store)
    tasks = [directory(folder) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: prepare(one, package, store), tasks))
    (path,) = {one.path for one in tasks}
    assert sorted(entry.name for entry in path.iterdir()) == ["run.sh", "train.py"]
    assert os.access(path / "run.sh", os.X_OK)
    (path / "written.txt").write_text("by a task")
    elsewhere = prepare(directory(folder, machine=MachineId("rack/m1")), package, store)
    next_attempt = prepare(directory(folder, key(attempt=2)), package, store)
    assert not (elsewhere.path / "written.txt").exists()
    assert not (next_attempt.path / "written.txt").exists()
    for one in tasks[:-1]:
        one.release()
    assert (path / "written.txt").exists()
    tasks[-1].release()
    assert not path.exists()
    (elsewhere.path / "closed").mkdir(mode=0o500)
    for one in (elsewhere, next_attempt):
        one.release()
    assert list(folder.iterdir()) == []


def test_without_a_package_it_is_empty(tmp_path: Path) -> None:
    one = prepare(directory(tmp_path / "machine"), "", f"file://{tmp_path / 'nowhere'}")
    assert list(one.path.iterdir()) == []
    one.release()
    assert not (tmp_path / "nowhere").exists()


_HOLDER = """
import sys, threading, time
from pathlib import Path
from services.execution.working_directory import WorkingDirectory
from tests.execution.orders import key
from domain.identifiers import MachineId
one = WorkingDirectory(Path(sys.argv[1]), key("killed"), MachineId("m0"))
one.prepare("", "file:///nowhere", threading.Event())
print("there", flush=True)
time.sleep(86400)
"""


def test_what_a_killed_process_held_is_removed_by_the_next_one_and_no_sooner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDER, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "there\n"
        held = directory(tmp_path, key("killed")).path
        prepare(directory(tmp_path), "", "file:///nowhere").release()
        assert held.exists()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    prepare(directory(tmp_path), "", "file:///nowhere").release()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_fetched_or_unpacked_is_said(tmp_path: Path) -> None:
    store, folder = f"file://{tmp_path / 'store'}", tmp_path / "machine"
    package = stored(project(tmp_path / "project", train_py="print(1)"), store)
    archive = tmp_path / "store" / f"{package}.tar"
    content = archive.read_bytes()
    failures: dict[str, bool] = {}

    def fails(name: str) -> str:
        with pytest.raises(NotPrepared) as refused:
            directory(folder).prepare(name, store, threading.Event())
        failures[name] = refused.value.why.machine_lost
        assert not directory(folder).path.exists()
        return str(refused.value)

    assert "storage.packages" in fails("0" * 64)
    archive.write_bytes(content.replace(b"print(1)", b"print(2)"))
    assert "damaged" in fails(package)
    no_archive = b"this is no archive " * 100
    bad = hashlib.sha256(no_archive).hexdigest()
    with PackageFolder(store).write(bad) as writing:
        writing.write(no_archive)
        writing.finish()
    assert "cannot be unpacked" in fails(bad)
    assert failures == {"0" * 64: True, package: True, bad: False}
    archive.write_bytes(content)
    prepare(directory(folder), package, store).release()
    assert list(folder.iterdir()) == []


def test_a_store_that_hangs_is_not_waited_for_when_nobody_needs_it_any_more(tmp_path: Path) -> None:
    store, folder = f"file://{tmp_path / 'store'}", tmp_path / "machine"
    package = stored(project(tmp_path / "project", train_py="print(1)"), store)
    given_up = threading.Event()
    given_up.set()
    one = directory(folder)
    with pytest.raises(GivenUp):
        one.prepare(package, store, given_up)
    one.release()
    assert list(folder.iterdir()) == []


def archive(*members: tuple[str, dict[str, str]]) -> bytes:
    """Files of one byte, with these names and these extended headers."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, headers in members:
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = 1, headers
            tar.addfile(member, io.BytesIO(b"x"))
    return written.getvalue()


@pytest.mark.parametrize(
    "members",
    [
        [("a" * 300, {})],
        [("a", {}), ("a/b", {})],
        [("a/b", {}), ("a", {})],
        [("a", {"path": "a\0b"})],
        [("a", {"mtime": "inf"})],
        [("a", {"mtime": "nan"})],
        [("/".join(["a"] * 2_000), {})],
        [("a", {"GNU.sparse.map": "0,x", "GNU.sparse.size": "5"})],
        [("a", {"GNU.sparse.map": "0,1", "GNU.sparse.size": str(2**62)})],
    ],
    ids=["long name", "file as folder", "folder as file", "NUL", "infinite", "no time", "deep", "no map", "huge"],
)
def test_a_package_that_no_machine_can_unpack_is_not_taken_for_a_lost_machine(
    tmp_path: Path, members: list[tuple[str, dict[str, str]]]
) -> None:
    """Else its workload would go from machine to machine for good."""
    store, content = f"file://{tmp_path / 'store'}", archive(*members)
    package = hashlib.sha256(content).hexdigest()
    with PackageFolder(store).write(package) as writing:
        writing.write(content)
        writing.finish()
    one = directory(tmp_path / "machine")
    with pytest.raises(NotPrepared) as refused:
        prepare(one, package, store)
    assert not refused.value.why.machine_lost
    assert "cannot be unpacked" in str(refused.value)
    one.release()
    assert list((tmp_path / "machine").iterdir()) == []


def links(*entries: tuple[str, bytes, str]) -> bytes:
    """An archive of these names, kinds and targets; what is a file has another content than what is on the machine."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, kind, target in entries:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, target
            content = b"overwritten" if kind == tarfile.REGTYPE else b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return written.getvalue()


def beyond_what_a_path_may_have() -> list[tuple[str, bytes, str]]:
    """A link out of the folder whose path is so long that the system does not say where it leads (CVE-2025-4517)."""
    entries, path, long = [], "", "d" * 247
    steps = "abcdefghijklmnop"
    for step in steps:
        entries += [(f"{path}{long}", tarfile.DIRTYPE, ""), (f"{path}{step}", tarfile.SYMTYPE, long)]
        path = f"{path}{long}/"
    out = f"{'/'.join(steps)}/{'l' * 254}"
    return [*entries, (out, tarfile.SYMTYPE, "../" * len(steps)), ("escape", tarfile.SYMTYPE, f"{out}/../")]


@pytest.mark.parametrize(
    "entries",
    [
        [
            *beyond_what_a_path_may_have(),
            ("hard", tarfile.LNKTYPE, "escape/victim"),
            ("hard", tarfile.REGTYPE, ""),
        ],
        [*beyond_what_a_path_may_have(), ("escape/victim", tarfile.REGTYPE, "")],
        [("inner", tarfile.DIRTYPE, ""), ("way", tarfile.SYMTYPE, "inner"), ("way/file", tarfile.REGTYPE, "")],
        [("file", tarfile.REGTYPE, ""), ("way", tarfile.SYMTYPE, "file"), ("way", tarfile.REGTYPE, "")],
        [("file", tarfile.REGTYPE, ""), ("way", tarfile.SYMTYPE, "file"), ("hard", tarfile.LNKTYPE, "way")],
        [("inner", tarfile.DIRTYPE, ""), ("inner/../file", tarfile.REGTYPE, "")],
    ],
    ids=["hard link out", "file out", "through", "over", "hard link to", "dots"],
)
def test_never_is_a_package_unpacked_through_a_link(tmp_path: Path, entries: list[tuple[str, bytes, str]]) -> None:
    store, content = f"file://{tmp_path / 'store'}", links(*entries)
    package = hashlib.sha256(content).hexdigest()
    with PackageFolder(store).write(package) as writing:
        writing.write(content)
        writing.finish()
    machine = tmp_path / "machine"
    for victim in (tmp_path / "victim", machine / "victim"):
        victim.parent.mkdir(exist_ok=True)
        victim.write_text("untouched")
    one = directory(machine)
    with pytest.raises(NotPrepared, match="cannot be unpacked") as refused:
        prepare(one, package, store)
    assert not refused.value.why.machine_lost
    one.release()
    assert [path.name for path in machine.iterdir()] == ["victim"]
    assert {(tmp_path / "victim").read_text(), (machine / "victim").read_text()} == {"untouched"}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Path]:
    """A folder that is gone afterwards, whatever is in it: pytest could not remove it."""
    yield tmp_path / "machine"
    subprocess.run(["rm", "-rf", str(tmp_path / "machine")], check=True)


def test_however_deep_a_task_makes_its_folders_its_machine_serves_others_afterwards(machine: Path) -> None:
    deep = prepare(directory(machine), "", "file:///nowhere")
    (deep.path / "elsewhere").symlink_to(machine)
    made = "import os\nfor _ in range(3000): os.mkdir('folder'); open('file', 'w').close(); os.chdir('folder')"
    subprocess.run([sys.executable, "-c", made], cwd=deep.path, check=True)
    other = prepare(directory(machine, key("other")), "", "file:///nowhere")
    deep.release()
    assert not deep.path.exists()
    assert other.path.exists()
    other.release()
    assert list(machine.iterdir()) == []


def test_a_python_that_cannot_filter_what_it_unpacks_has_a_library_do_it(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'store'}"
    package = stored(project(tmp_path / "project", train_py="print(1)"), store)
    # As Python 3.11.3 is, and that of Debian 12.
    older = f"""
import tarfile
del tarfile.data_filter
tarfile.TarFile.extractall = None
import threading
from pathlib import Path
from domain.identifiers import MachineId
from services.execution.working_directory import WorkingDirectory
from tests.execution.orders import key
one = WorkingDirectory(Path({str(tmp_path / "machine")!r}), key(), MachineId("m0"))
one.prepare({package!r}, {store!r}, threading.Event())
print(*(path.name for path in one.path.iterdir()))
one.release()
"""
    printed = subprocess.run([sys.executable, "-c", older], capture_output=True, text=True, check=False)
    assert printed.stdout == "train.py\n", printed.stderr
