"""Wherever a name that somebody gave becomes a path, that path is inside the folder which it is meant for."""

from __future__ import annotations

import posixpath
import threading
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from domain.identifiers import IDENTIFIER_PATTERN, AttemptNumber, JobName, MachineId, WorkloadId
from domain.placement import AttemptKey
from services.data_placement.movers.region_folders import MoverProblem, RegionFolder
from services.execution.checkpoint_copies import opened_store
from services.execution.stored_logs import LogUpload
from services.execution.task_paths import TaskPaths
from services.execution.working_directory import WorkingDirectory
from services.metrics.targets import announced_target, targets_folder
from services.storage.package_folder import PackageFolder, PackageNotStored
from services.storage.storage_folder import StoreFailed
from services.storage.stored_files import StoredFiles
from topmast.training.task_environment import TaskEnvironment

NAMES = st.one_of(
    st.text(max_size=12),
    st.from_regex(IDENTIFIER_PATTERN, fullmatch=True).map(lambda name: name[:40]),
    st.lists(st.sampled_from(["..", ".", "/", "a", "%2e", "%2F", "\\", "\0", "~", "*", " "]), max_size=7).map("".join),
)
"""Anything; what the rule of names allows (a/../../b is one); and what leads elsewhere."""

_FEW = settings(max_examples=60)
_HOME = Path("/srv/home")


def _inside(path: str | Path, folder: str | Path) -> bool:
    """Whether it is below the folder, however often it says `..`."""
    normal = posixpath.normpath(str(path))
    return normal.startswith(f"{posixpath.normpath(str(folder))}/") and "\0" not in normal


@_FEW
@given(workload=NAMES, job=NAMES, machine=NAMES)
@example(workload="a/../../b", job="..", machine="../x")
def test_never_does_a_name_of_a_workload_job_or_machine_lead_out(workload: str, job: str, machine: str) -> None:
    paths, key, name = TaskPaths(_HOME), AttemptKey(WorkloadId(workload), AttemptNumber(1)), JobName(job)
    for path, folder in (
        (paths.checkpoint_directory(key.workload), "checkpoints"),
        (paths.log(key, name, 0), "logs"),
        (paths.attempt_directory(key), "tasks"),
        (paths.task_directory(key, name, 0), "tasks"),
        (paths.journal(key, name, 0), "tasks"),
        (WorkingDirectory(paths.working_directories, key, MachineId(machine)).path, "working_directories"),
    ):
        assert _inside(path, _HOME / folder), path
    # None is another's: of one that begins with the other.
    other = paths.attempt_directory(AttemptKey(WorkloadId(workload + "/1"), AttemptNumber(1)))
    assert not _inside(other, paths.attempt_directory(key).parent)


@_FEW
@given(job=NAMES)
@example(job="..")
def test_never_does_a_job_save_its_checkpoints_elsewhere(job: str) -> None:
    said = {"TOPMAST_WORKLOAD": "w", "TOPMAST_ATTEMPT": "1", "TOPMAST_JOB": job, "TOPMAST_TASK": "0"}
    said |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TOPMAST_CHECKPOINT_DIRECTORY": "/srv/checkpoints"}
    task = TaskEnvironment.of(said)
    assert task is not None
    assert _inside(task.checkpoint_directory, "/srv/checkpoints")


@_FEW
@given(workload=NAMES, job=NAMES, content=NAMES)
@example(workload="../..", job="..", content="../../other/manifests/x")
def test_never_does_a_name_lead_out_of_a_store(workload: str, job: str, content: str) -> None:
    with TemporaryDirectory() as root:
        store, secret = Path(root, "store"), Path(root, "secret")
        secret.write_text("of another")
        key = AttemptKey(WorkloadId(workload), AttemptNumber(1))
        checkpoints = opened_store(f"file://{store}", key)
        assert _inside(checkpoints.root, store)
        log = Path(root, "log")
        log.write_text("printed")
        LogUpload(log, f"file://{store}", key, JobName(job), 0).upload()
        # What a manifest in the store calls a file of it may be anything.
        within = StoredFiles(f"file://{store}/inside", "the store")
        with suppress(StoreFailed, FileNotFoundError, OSError):
            within.write(content, b"written")
        for path in ("../../secret", content):
            with suppress(StoreFailed, FileNotFoundError, OSError):
                assert within.read(path) == b"written"
        assert {path.name for path in Path(root).iterdir()} <= {"store", "secret", "log"}
        assert secret.read_text() == "of another"


@_FEW
@given(package=NAMES)
@example(package="../../etc/passwd")
@example(package="..")
def test_never_does_a_package_lie_outside_its_store(package: str) -> None:
    folder = PackageFolder("file:///srv/packages")
    try:
        place = folder.place(package)
    except PackageNotStored:
        return
    assert _inside(place, "/srv/packages")


class _Free:
    def in_charge(self) -> None: ...

    def goes_on(self) -> None: ...


@_FEW
@given(table=NAMES, name=NAMES)
@example(table="a/../../b", name="")
@example(table="a", name="..")
def test_never_does_a_table_lie_outside_the_storage_of_its_region(table: str, name: str) -> None:
    folder = RegionFolder("east", "file:///srv/east", _Free())
    try:
        path = folder.path(table, name)
    except MoverProblem:
        return
    assert _inside(path, "/srv/east")
    if name:
        assert _inside(path, folder.path(table))


@settings(max_examples=25)
@given(tier=NAMES.filter(lambda name: "\0" not in name))
@example(tier="regional/a/../../../b")
def test_never_does_a_tier_announce_its_metrics_elsewhere(tier: str) -> None:
    with TemporaryDirectory() as root:
        home = Path(root, "home")
        with announced_target(home, f"regional/{tier}", "127.0.0.1:1"):
            assert [path.parent for path in Path(root).rglob("*") if path.is_file()] == [targets_folder(home)]


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "link/secret"])
def test_never_does_a_file_in_a_package_lie_outside_the_working_directory(tmp_path: Path, name: str) -> None:
    import hashlib
    import io
    import tarfile

    from services.execution.working_directory import NotPrepared

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        tar.addfile(link)
        file = tarfile.TarInfo(name)
        file.size = 4
        tar.addfile(file, io.BytesIO(b"mine"))
    package = hashlib.sha256(content.getvalue()).hexdigest()
    store = tmp_path / "packages"
    store.mkdir()
    (store / f"{package}.tar").write_bytes(content.getvalue())
    directory = WorkingDirectory(
        tmp_path / "home" / "working_directories", AttemptKey(WorkloadId("w"), AttemptNumber(1)), MachineId("m")
    )
    with suppress(NotPrepared):
        directory.prepare(package, f"file://{store}", threading.Event())
    assert not (tmp_path / "secret").exists()
    assert not (tmp_path / "home" / "secret").exists()
