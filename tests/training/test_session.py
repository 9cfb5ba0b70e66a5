import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import grpc
import numpy as np
import pytest

from tests.security.certificate_worlds import made, security_of
from tests.training.scripted_cluster_manager import ScriptedClusterManager
from topmast import training
from topmast.training.session import Session
from topmast.v1 import training_session_pb2

INTERVAL_S = 0.02


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A process that was not started by Topmast."""
    for name in ("TOPMAST_WORKLOAD", "TOPMAST_SESSION_ADDRESS", "TOPMAST_TASK_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield tmp_path
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def manager() -> Iterator[ScriptedClusterManager]:
    with ScriptedClusterManager() as manager:
        yield manager


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Puts this process into the place of a task; returns its task file."""

    def put(address: str, *, attempt: int = 1, rank: int = 0, world_size: int = 1) -> Path:
        task_file = tmp_path / f"task-{rank}" / "task.json"
        task_file.parent.mkdir(exist_ok=True)
        task_file.write_text(json.dumps({"session_address": address, "world_size": world_size}))
        variables = {
            "TOPMAST_WORKLOAD": "w",
            "TOPMAST_ATTEMPT": str(attempt),
            "TOPMAST_JOB": "train",
            "TOPMAST_TASK": str(rank),
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(rank),
            "TOPMAST_CHECKPOINT_DIRECTORY": str(tmp_path / "checkpoints"),
            "TOPMAST_SESSION_ADDRESS": address,
            "TOPMAST_TASK_FILE": str(task_file),
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return task_file

    return put


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits for what another thread is about to do."""
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, "it did not become true"
        time.sleep(0.005)


def opened() -> Session:
    return training.init(heartbeat_interval_s=INTERVAL_S)


def test_by_hand_everything_works_without_topmast(outside: Path) -> None:
    with training.init() as session:
        assert (session.local, session.rank, session.world_size, session.attempt) == (True, 0, 1, 0)
        assert session.restore() is None
        assert not session.step()
        saved = session.save({"weights": np.arange(3.0)})
        assert saved is not None
        assert saved.is_relative_to(outside / ".topmast" / "checkpoints") or not saved.is_absolute()
    with training.init() as again:
        state = again.restore()
        assert state is not None
        np.testing.assert_array_equal(state["weights"], np.arange(3.0))
        assert again.progress == 1.0


def test_by_hand_the_directory_can_be_chosen(outside: Path) -> None:
    with training.init(outside / "elsewhere") as session:
        saved = session.save(1, progress=5)
    assert saved is not None
    assert saved.parent == outside / "elsewhere"


@pytest.mark.usefixtures("outside")
def test_a_termination_asks_to_stop_and_the_old_handler_comes_back() -> None:
    def before(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"{number} at {frame}: the program ends before it has saved")

    signal.signal(signal.SIGTERM, before)
    with training.init() as session:
        assert not session.step()
        os.kill(os.getpid(), signal.SIGTERM)
        assert session.step()
        assert session.should_stop
        assert session.grace_left_s is None
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("outside")
def test_a_forked_process_can_be_terminated() -> None:
    """Data loaders are forked from the trainer and end by SIGTERM: the trainer's handler is not for them."""
    with training.init():
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGTERM


def test_progress_throughput_and_checkpoints_are_reported(
    manager: ScriptedClusterManager, inside: Callable[..., Path]
) -> None:
    inside(manager.address)
    with opened() as session:
        assert not session.local
        manager.wait_until(lambda record: len(record.heartbeats) > 0)
        for _ in range(40):
            session.step()
        manager.wait_until(lambda record: record.heartbeats[-1].progress == 40.0)
        path = session.save({"step": 40})
        manager.wait_until(lambda record: len(record.saved) == 1)
        assert max(heartbeat.steps_per_second for heartbeat in manager.heartbeats) > 0
    assert (manager.saved[0].progress, manager.saved[0].path) == (40.0, str(path))
    task = manager.heartbeats[0].task
    assert (task.workload, task.attempt, task.job, task.task) == ("w", 1, "train", 0)


def test_restored_progress_is_no_throughput(manager: ScriptedClusterManager, inside: Callable[..., Path]) -> None:
    inside(manager.address)
    with opened() as session:
        session.save("state", progress=1_000_000.0)
    inside(manager.address, attempt=2)
    manager.heartbeats.clear()
    with opened() as session:
        assert session.restore() == "state"
        manager.wait_until(lambda record: any(heartbeat.progress == 1e6 for heartbeat in record.heartbeats))
        heard = len(manager.heartbeats)
        manager.wait_until(lambda record: len(record.heartbeats) > heard + 2)
    assert all(heartbeat.steps_per_second == 0 for heartbeat in manager.heartbeats)


def test_the_cluster_manager_asks_to_stop(manager: ScriptedClusterManager, inside: Callable[..., Path]) -> None:
    task_file = inside(manager.address)
    with opened() as session:
        assert (task_file.parent / "session_opened").exists()
        manager.advice = training_session_pb2.HeartbeatResponse(should_stop=True, grace_left_s=500.0)
        wait_for(session.step)
        assert session.grace_left_s is not None
        assert 400 < session.grace_left_s <= 500
        assert (task_file.parent / "stop_seen").exists()
        session.save("last words")
    assert manager.saved[-1].progress == session.progress


def test_a_stop_that_the_program_was_not_told_leaves_no_mark(
    manager: ScriptedClusterManager, inside: Callable[..., Path]
) -> None:
    task_file = inside(manager.address)
    with opened():
        manager.advice = training_session_pb2.HeartbeatResponse(should_stop=True, grace_left_s=500.0)
        heard = len(manager.heartbeats)
        manager.wait_until(lambda record: len(record.heartbeats) > heard + 1)
    assert (task_file.parent / "session_opened").exists()
    assert not (task_file.parent / "stop_seen").exists()


def test_training_goes_on_without_a_cluster_manager_and_finds_the_next_one(
    manager: ScriptedClusterManager, inside: Callable[..., Path]
) -> None:
    task_file = inside(manager.address, world_size=2)
    with opened() as session:
        manager.wait_until(lambda record: len(record.heartbeats) > 0)
        manager.stop()
        session.step()
        session.save("while no manager listens")
        with ScriptedClusterManager() as successor:
            task_file.write_text(json.dumps({"session_address": successor.address, "world_size": 3}))
            successor.wait_until(lambda record: len(record.saved) == 1 and len(record.heartbeats) > 0)
            assert successor.heartbeats[-1].progress == 1.0
            assert session.world_size == 3


def test_an_absent_cluster_manager_does_not_delay_the_end(inside: Callable[..., Path]) -> None:
    inside("127.0.0.1:9")
    with opened() as session:
        session.save("state")
    assert not [thread for thread in threading.enumerate() if thread.name == "topmast-reporter"]


def test_an_attempt_that_is_over_stops_and_saves_nothing(
    manager: ScriptedClusterManager, inside: Callable[..., Path]
) -> None:
    inside(manager.address)
    manager.refusal = grpc.StatusCode.FAILED_PRECONDITION
    with opened() as session:
        wait_for(session.step)
        assert session.grace_left_s == 0.0
        with pytest.raises(training.StaleAttempt):
            session.save("too late")


@pytest.mark.parametrize("code", [grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE])
def test_other_errors_do_not_stop_the_training(
    manager: ScriptedClusterManager, inside: Callable[..., Path], code: grpc.StatusCode
) -> None:
    inside(manager.address)
    manager.refusal = code
    with opened() as session:
        manager.wait_until(lambda record: len(record.heartbeats) > 3)
        assert not session.should_stop


def test_a_stale_attempt_cannot_even_begin(manager: ScriptedClusterManager, inside: Callable[..., Path]) -> None:
    inside(manager.address, attempt=2)
    with opened():
        pass
    inside(manager.address, attempt=1)
    with pytest.raises(training.StaleAttempt):
        training.init()


def test_rank_0_writes_and_the_others_wait(manager: ScriptedClusterManager, inside: Callable[..., Path]) -> None:
    inside(manager.address, rank=0, world_size=2)
    writer = opened()
    inside(manager.address, rank=1, world_size=2)
    other = opened()
    with writer, other:
        waited: list[Path | None] = []
        thread = threading.Thread(target=lambda: waited.append(other.save("mine", progress=7.0)))
        thread.start()
        written = writer.save("ours", progress=7.0)
        thread.join()
        assert waited == [written]
        assert other.restore() == "ours"


def test_reports_the_model_and_the_time_of_its_steps(
    inside: Callable[..., Path], manager: ScriptedClusterManager
) -> None:
    inside(manager.address)
    with training.init(heartbeat_interval_s=INTERVAL_S) as session:
        manager.wait_until(lambda heard: bool(heard.heartbeats))
        first = manager.heartbeats[0]
        assert (first.iteration_s, first.largest_tensor_mib, first.model_mib) == (0.0, 0.0, 0.0)
        session.report_model({"dense": np.zeros(2**20, np.int8), "rest": np.zeros(2**18, np.int8)})
        began_s = time.monotonic()
        session.step(1)
        session.step(3)
        most_s = (time.monotonic() - began_s) / 2
        manager.wait_until(lambda heard: heard.heartbeats[-1].progress == 3)
    last = manager.heartbeats[-1]
    assert (last.largest_tensor_mib, last.model_mib) == (1.0, 1.25)
    assert 0 < last.iteration_s <= most_s


@pytest.mark.usefixtures("outside")
def test_a_model_that_is_none_is_refused_where_it_is_given() -> None:
    with training.init() as session:
        session.report_model({"w": np.zeros(8)})
        with pytest.raises(TypeError, match="model is a set"):
            session.report_model({1, 2})


def test_a_task_reports_by_tls(inside: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    security = security_of(made(tmp_path / "certificates"))
    with ScriptedClusterManager(security.server_credentials(between_tiers=False)) as manager:
        monkeypatch.setenv("TOPMAST_SESSION_AUTHORITY", security.authority())
        inside(manager.address)
        with opened():
            manager.wait_until(lambda manager: bool(manager.heartbeats))
