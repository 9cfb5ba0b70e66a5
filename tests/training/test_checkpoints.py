import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.examples import examples
from topmast.training.checkpoints import CheckpointStore, StaleAttempt, found_in, newest_progress


def store_of(directory: Path, attempt: int = 1, keep: int = 3) -> CheckpointStore:
    store = CheckpointStore(directory, attempt, keep)
    store.begin()
    return store


def test_the_newest_checkpoint_is_restored(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    assert store.restore() is None
    for step in (10, 20):
        store.save({"weights": np.full(3, step)}, float(step))
    restored = store.restore()
    assert restored is not None
    checkpoint, state = restored
    assert (checkpoint.attempt, checkpoint.number, checkpoint.progress) == (1, 2, 20.0)
    np.testing.assert_array_equal(state["weights"], np.full(3, 20))


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    store = store_of(tmp_path, keep=2)
    for step in range(5):
        store.save(step, float(step))
    assert [checkpoint.progress for checkpoint in found_in(tmp_path)] == [3.0, 4.0]
    with pytest.raises(ValueError, match="at least one"):
        CheckpointStore(tmp_path, 1, 0)


def test_a_stale_attempt_cannot_begin_nor_write(tmp_path: Path) -> None:
    older = store_of(tmp_path, attempt=1)
    older.save("old", 10.0)
    newer = store_of(tmp_path, attempt=2)
    newer.save("new", 12.0)
    with pytest.raises(StaleAttempt, match="attempt 1 is stale: attempt 2 has begun"):
        older.save("stale", 99.0)
    with pytest.raises(StaleAttempt):
        store_of(tmp_path, attempt=1)
    restored = newer.restore()
    assert restored is not None
    assert restored[1] == "new"


def test_of_two_attempts_the_newer_one_counts_even_if_it_was_less_far(tmp_path: Path) -> None:
    store_of(tmp_path, attempt=1).save("old", 50.0)
    newer = store_of(tmp_path, attempt=2)
    newer.save("new", 20.0)
    restored = newer.restore()
    assert restored is not None
    assert restored[1] == "new"


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    for step in (1, 2, 3):
        store.save({"weights": np.full(1000, step)}, float(step))
    second, third = (checkpoint.path for checkpoint in found_in(tmp_path)[1:])
    with (third / "arrays.npz").open("r+b") as stream:
        stream.truncate(100)
    (second / "state.json").write_text("{")
    restored = store.restore()
    assert restored is not None
    assert restored[0].progress == 1.0


def test_what_was_half_written_is_not_there_and_is_cleared_away(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    with pytest.raises(TypeError):
        store.save({"weights": np.zeros(3), "model": object()}, 1.0)
    assert found_in(tmp_path) == []
    assert not list(tmp_path.glob(".writing*"))
    half = tmp_path / ".writing-1-12345"
    half.mkdir()
    (half / "checkpoint.json").write_text('{"progress": 7.0}')
    assert store.restore() is None
    store.clear_leftovers()
    assert not half.exists()


def test_the_others_wait_for_the_writer(tmp_path: Path) -> None:
    writer, reader = store_of(tmp_path), store_of(tmp_path)
    writer.save("before", 5.0)
    assert reader.wait_for(10.0, timeout_s=0.0) is None
    found = []
    waiting = threading.Thread(target=lambda: found.append(reader.wait_for(10.0, timeout_s=60.0)))
    waiting.start()
    writer.save("now", 10.0)
    waiting.join()
    assert [checkpoint.progress for checkpoint in found if checkpoint is not None] == [10.0]


def test_the_progress_on_disk_is_that_of_the_attempt_or_older_ones(tmp_path: Path) -> None:
    assert newest_progress(tmp_path / "nowhere", 9) is None
    store_of(tmp_path / "train", attempt=1).save(None, 10.0)
    store_of(tmp_path / "train", attempt=3).save(None, 30.0)
    store_of(tmp_path / "evaluate", attempt=1).save(None, 15.0)
    assert [newest_progress(tmp_path, attempt) for attempt in (0, 1, 2, 3)] == [None, 15.0, 15.0, 30.0]


WRITES_FOREVER = """
import sys
from pathlib import Path
import numpy as np
from topmast.training.checkpoints import CheckpointStore
store = CheckpointStore(Path(sys.argv[1]), 1, 2)
store.begin()
step = 0
while True:
    step += 1
    store.save({"step": step, "weights": np.full(20_000, step)}, float(step))
    print(step, flush=True)
"""


@pytest.mark.live
def test_never_is_a_checkpoint_half_there_when_its_writer_is_killed(tmp_path: Path) -> None:
    for number in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITES_FOREVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            saved = [int(writer.stdout.readline()) for _ in range(5 + number)][-1]
            os.kill(writer.pid, signal.SIGKILL)
        restored = CheckpointStore(tmp_path, 1, 2).restore()
        assert restored is not None
        checkpoint, state = restored
        assert checkpoint.progress == state["step"] >= saved
        np.testing.assert_array_equal(state["weights"], np.full(20_000, state["step"]))


class FenceMachine(RuleBasedStateMachine):
    """Attempts begin and save in any order, also those that should be dead."""

    @initialize()
    def begin(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.stores: dict[int, CheckpointStore] = {}
        self.newest = 0
        self.last_good: str | None = None

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            rmtree(self.directory)

    @rule(attempt=st.integers(1, 4))
    def start_attempt(self, attempt: int) -> None:
        store = CheckpointStore(self.directory, attempt, keep=2)
        if attempt < self.newest:
            with pytest.raises(StaleAttempt):
                store.begin()
            return
        store.begin()
        self.stores[attempt], self.newest = store, attempt

    @rule(attempt=st.integers(1, 4), word=st.text(max_size=3))
    def save(self, attempt: int, word: str) -> None:
        store = self.stores.get(attempt)
        if store is None:
            return
        if attempt < self.newest:
            with pytest.raises(StaleAttempt):
                store.save(f"{attempt} {word}", 1.0)
            return
        store.save(f"{attempt} {word}", 1.0)
        self.last_good = f"{attempt} {word}"

    @invariant()
    def never_does_a_stale_attempt_change_what_is_restored(self) -> None:
        if not getattr(self, "stores", None):
            return
        restored = self.stores[self.newest].restore()
        assert (restored[1] if restored is not None else None) == self.last_good


TestNeverDoesAStaleAttemptChangeAnything = FenceMachine.TestCase
TestNeverDoesAStaleAttemptChangeAnything.settings = settings(max_examples=examples(30), stateful_step_count=15)
