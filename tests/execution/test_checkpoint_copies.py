"""Checkpoint directories are copied to a store and back: what is told as saved is there, and nothing of what is half there counts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from services.execution.checkpoint_copies import CheckpointCopies, CheckpointMissing, NewerAttempt, stored_progress
from services.storage.storage_folder import StoreFailed
from tests.data_placement_service.object_store import SECRET_KEY, object_store
from tests.execution.live import REPOSITORY
from tests.execution.orders import key
from topmast.training.checkpoints import CheckpointStore

NEVER = threading.Event()


class Machine:
    """A folder of its own, as one attempt after the other meets it."""

    def __init__(self, directory: Path, store: str) -> None:
        self.directory = directory
        self.store = store

    def begins(self, attempt: int, *, told: float = 0.0, elsewhere: bool = False, quiet_s: float = 3600.0) -> Attempt:
        copies = CheckpointCopies(
            self.directory, self.store, key(attempt=attempt), elsewhere=elsewhere, quiet_s=quiet_s
        )
        copies.prepare(told, NEVER)
        return Attempt(self.directory, attempt, copies)

    def files(self) -> dict[str, str]:
        """What a program has written itself."""
        own = (path for path in self.directory.rglob("*") if path.is_file() and ".store" not in path.parts)
        return {path.relative_to(self.directory).as_posix(): path.read_text() for path in own}


class Attempt:
    def __init__(self, directory: Path, attempt: int, copies: CheckpointCopies) -> None:
        self.directory = directory
        self.copies = copies
        self.library = CheckpointStore(directory / "train", attempt, keep=2)
        self._begun = False

    def saves(self, progress: float) -> None:
        if not self._begun:
            self.library.begin()
            self._begun = True
        self.library.save({"step": progress, "weights": "w" * 10_000}, progress)

    def looks(self, *, settled: bool = False) -> float:
        return self.copies.look(NEVER, settled=settled)

    def restored(self) -> float | None:
        found = self.library.restore()
        return None if found is None else found[1]["step"]


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'store'}"


@pytest.fixture
def one(tmp_path: Path, store: str) -> Machine:
    return Machine(tmp_path / "one" / "checkpoints" / "w", store)


@pytest.fixture
def other(tmp_path: Path, store: str) -> Machine:
    return Machine(tmp_path / "other" / "checkpoints" / "w", store)


def contents(tmp_path: Path) -> list[Path]:
    return sorted(path for path in (tmp_path / "store" / "w" / "contents").rglob("*") if path.is_file())


def test_the_next_attempt_goes_on_on_another_machine_and_comes_back(one: Machine, other: Machine, store: str) -> None:
    first = one.begins(1)
    assert first.looks() == 0.0
    first.saves(10.0)
    assert stored_progress(store, key()) == 0.0
    assert first.looks() == 10.0
    first.saves(20.0)
    first.saves(30.0)
    assert first.looks() == stored_progress(store, key()) == 30.0
    second = other.begins(2, told=30.0)
    assert second.restored() == 30.0
    assert second.looks() == 30.0
    second.saves(40.0)
    assert second.looks() == 40.0
    # An older attempt is not told what came after it.
    assert stored_progress(store, key(attempt=1)) == 30.0
    third = one.begins(3, told=40.0)
    assert third.restored() == 40.0


def test_the_store_keeps_what_the_folder_keeps(one: Machine, tmp_path: Path) -> None:
    attempt = one.begins(1)
    sizes = []
    for progress in range(1, 8):
        attempt.saves(float(progress))
        attempt.looks()
        sizes.append(len(contents(tmp_path)))
    assert sizes[0] > 0
    assert sizes[1:] == [2 * sizes[0]] * 6
    assert len(list((tmp_path / "store" / "w" / "manifests").iterdir())) == 1


def test_what_broke_off_is_never_gone_on_from_and_does_not_stay(one: Machine, other: Machine, tmp_path: Path) -> None:
    attempt = one.begins(1)
    attempt.saves(10.0)
    attempt.looks()
    before = contents(tmp_path)
    attempt.saves(20.0)
    # The last thing that an upload writes finds no folder.
    manifests = tmp_path / "store" / "w" / "manifests"
    manifests.rename(tmp_path / "aside")
    manifests.write_text("in the way")
    with pytest.raises(StoreFailed, match="the store of checkpoints, file://"):
        attempt.looks()
    manifests.unlink()
    (tmp_path / "aside").rename(manifests)
    assert len(contents(tmp_path)) > len(before)
    assert stored_progress(one.store, key()) == 10.0
    assert other.begins(2, told=10.0).restored() == 10.0
    # What nobody needs goes with the next attempt.
    assert contents(tmp_path) == before


UPLOADS_SLOWLY = """
import sys, threading, time
from pathlib import Path
from services.execution.checkpoint_copies import CheckpointCopies
from services.storage import stored_files
from tests.execution.orders import key
stored_files._CHUNK_BYTES = 1024
class Slow(threading.Event):
    chunks = 0
    def is_set(self):
        Slow.chunks += 1
        if Slow.chunks == 5:
            print("under way", flush=True)
            time.sleep(3600)
        return False
copies = CheckpointCopies(Path(sys.argv[1]), sys.argv[2], key(), elsewhere=False, quiet_s=3600.0)
copies.look(Slow())
"""


def test_a_process_that_is_killed_while_it_uploads_leaves_no_half_checkpoint(
    one: Machine, other: Machine, tmp_path: Path
) -> None:
    attempt = one.begins(1)
    attempt.saves(10.0)
    assert attempt.looks() == 10.0
    attempt.saves(20.0)
    before = len(contents(tmp_path))
    uploading = subprocess.Popen(
        [sys.executable, "-c", UPLOADS_SLOWLY, str(one.directory), one.store],
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        text=True,
    )
    with uploading:
        assert uploading.stdout is not None
        assert uploading.stdout.readline() == "under way\n"
        uploading.send_signal(signal.SIGKILL)
    assert len(contents(tmp_path)) > before
    assert other.begins(2, told=10.0).restored() == 10.0
    # The machine itself has more, and goes on with that: its lock went with the process that was killed.
    assert one.begins(3, told=10.0).restored() == 20.0


def test_files_of_a_program_are_copied_when_they_are_quiet_and_when_it_has_ended(one: Machine, other: Machine) -> None:
    attempt = one.begins(1)
    written = one.directory / "epochs" / "model.pt"
    written.parent.mkdir()
    written.write_text("half")
    attempt.looks()
    assert other.begins(1).directory.joinpath("epochs").exists() is False
    written.write_text("whole")
    attempt.looks(settled=True)
    (one.directory / "tail.txt").write_text("begun")
    # Killed: what changed last is not known to be complete.
    attempt.looks()
    second = other.begins(2)
    assert other.files() == {"epochs/model.pt": "whole"}
    written_there = other.directory / "epochs" / "model.pt"
    written_there.write_text("better")
    (other.directory / "best.txt").write_text("2")
    second.looks(settled=True)
    # The first machine has them as they are now, and nothing that was never stored.
    one.begins(3)
    assert one.files() == {"epochs/model.pt": "better", "best.txt": "2"}
    quiet = one.begins(4, quiet_s=0.0)
    (one.directory / "best.txt").unlink()
    quiet.looks()
    other.begins(5)
    assert other.files() == {"epochs/model.pt": "better"}


def test_files_that_change_while_they_are_copied_are_not_stored(one: Machine, other: Machine) -> None:
    attempt = one.begins(1)
    (one.directory / "model.pt").write_text("first")
    attempt.looks(settled=True)

    class WritesMeanwhile(threading.Event):
        def is_set(self) -> bool:
            with (one.directory / "model.pt").open("a") as model:
                model.write(" and more")
            return False

    (one.directory / "model.pt").write_text("second")
    attempt.copies.look(WritesMeanwhile(), settled=True)
    other.begins(2)
    assert other.files() == {"model.pt": "first"}


def test_several_machines_of_one_attempt_add_up(one: Machine, other: Machine, tmp_path: Path, store: str) -> None:
    here, there = one.begins(1), other.begins(1, elsewhere=True)
    here.saves(10.0)
    (one.directory / "rank-0.txt").write_text("0")
    (other.directory / "rank-1.txt").write_text("1")
    here.looks(settled=True)
    there.looks(settled=True)
    # Who waits there for rank 0 hears of it, and does not take it for a checkpoint that it could read.
    seen = there.library.wait_for(10.0, 0.0)
    assert seen is not None
    assert seen.progress == 10.0
    assert there.restored() is None
    third = Machine(tmp_path / "third", store)
    assert third.begins(2, told=10.0).restored() == 10.0
    assert {"rank-0.txt", "rank-1.txt"} <= third.files().keys()


def test_a_stale_attempt_stores_nothing_any_more(one: Machine, other: Machine, store: str) -> None:
    stale = one.begins(1)
    stale.saves(10.0)
    stale.looks()
    other.begins(2, told=10.0)
    stale.saves(20.0)
    with pytest.raises(NewerAttempt):
        stale.looks()
    assert stored_progress(store, key(attempt=2)) == 10.0
    with pytest.raises(NewerAttempt):
        Machine(one.directory.parent / "third", store).begins(1)


@pytest.mark.parametrize("forgets", [False, True], ids=["as it was", "without what is known of it"])
def test_never_is_anything_written_through_a_link_of_the_task(one: Machine, tmp_path: Path, forgets: bool) -> None:
    """The folder is the task's, who may be another user; who copies may do more than that."""
    first = one.begins(1)
    first.saves(10.0)
    (one.directory / "own").mkdir()
    (one.directory / "own" / "planted").write_text("as the service")
    assert first.looks(settled=True) == 10.0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("own", "train", ".store"):
        (one.directory / name).rename(tmp_path / f"former-{name}")
        (one.directory / name).symlink_to(elsewhere if forgets else tmp_path / f"former-{name}")
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.glob("former-*"))}
    second = one.begins(2)
    assert list(elsewhere.iterdir()) == []
    assert second.restored() == 10.0
    assert one.files()["own/planted"] == "as the service"
    second.saves(20.0)
    (one.directory / ".store").rename(tmp_path / "later")
    (one.directory / ".store").symlink_to(elsewhere)
    assert second.looks(settled=True) == 20.0
    assert list(elsewhere.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_what_was_told_and_is_not_there_is_not_begun_anew(other: Machine) -> None:
    with pytest.raises(CheckpointMissing, match="saved at 30, and there is no checkpoint in file://"):
        other.begins(2, told=30.0)


def test_a_damaged_content_is_not_taken_for_a_checkpoint(one: Machine, other: Machine, tmp_path: Path) -> None:
    attempt = one.begins(1)
    attempt.saves(10.0)
    attempt.looks()
    largest = max(contents(tmp_path), key=lambda path: path.stat().st_size)
    os.truncate(largest, 10)
    with pytest.raises(StoreFailed, match="has been damaged"):
        other.begins(2, told=10.0)
    assert list(other.directory.glob("train/checkpoint-*")) == []


def test_a_folder_that_had_checkpoints_before_there_was_a_store_goes_on(one: Machine, store: str) -> None:
    before = CheckpointStore(one.directory / "train", 1, keep=2)
    before.begin()
    before.save({"step": 10.0}, 10.0)
    attempt = one.begins(2, told=10.0)
    assert attempt.restored() == 10.0
    assert attempt.looks() == stored_progress(store, key(attempt=2)) == 10.0


def test_checkpoints_go_to_s3_and_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_store(monkeypatch, "east") as s3:
        url = "s3://east/tables/checkpoints"
        one, other = Machine(tmp_path / "one", url), Machine(tmp_path / "other", url)
        attempt = one.begins(1)
        for progress in (10.0, 20.0, 30.0):
            attempt.saves(progress)
            (one.directory / "empty.txt").write_text("")
            assert attempt.looks(settled=True) == progress
        assert other.begins(2, told=30.0).restored() == 30.0
        assert other.files()["empty.txt"] == ""
        names = s3.names("east")
        assert len([name for name in names if "/manifests/" in name]) == 1
        assert not any(SECRET_KEY in name for name in names)
        with pytest.raises(StoreFailed, match="the store of checkpoints, s3://nowhere/tables"):
            Machine(tmp_path / "third", "s3://nowhere/tables").begins(1)


def test_lock_is_waited_for_only_when_the_task_has_ended(one: Machine) -> None:
    attempt = one.begins(1)
    attempt.saves(10.0)
    given_up = threading.Event()
    begun_s = time.monotonic()
    with attempt.copies._held(None) as held:
        assert held
        assert attempt.looks() == 0.0
        waiting = threading.Thread(target=lambda: attempt.copies.look(given_up, settled=True))
        waiting.start()
    waiting.join()
    assert time.monotonic() >= begun_s
    assert attempt.looks() == 10.0
