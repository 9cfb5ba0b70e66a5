"""The data-parallel examples, with tasks that come, go and are lost, as a cluster manager would tell them."""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from topmast.training.checkpoints import write_whole

pytestmark = pytest.mark.live

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "training"
STEPS = 400
PATIENCE_S = 240.0


class Job:
    """Tasks of one attempt, each a process with a task file of its own."""

    def __init__(self, example: str, directory: Path, attempt: int = 1) -> None:
        self.example = example
        self.directory = directory
        self.attempt = attempt
        self.tasks: dict[int, subprocess.Popen[bytes]] = {}
        with socket.socket() as probe:
            probe.bind(("", 0))
            self.port = int(probe.getsockname()[1])

    def log(self, task: int) -> str:
        file = self.directory / f"log-{self.attempt}-{task}"
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def resize(self, revision: int, world_size: int) -> None:
        """Those that are not there any more are asked to leave, new ones start, and all that stay are told."""
        for task in [task for task in self.tasks if task >= world_size]:
            self.tasks[task].send_signal(signal.SIGTERM)
        for task in range(world_size):
            if task not in self.tasks:
                self._tell(task, revision, world_size)
                self._start(task, world_size)
        for task in [task for task in self.tasks if task >= world_size]:
            assert self.tasks.pop(task).wait(PATIENCE_S) == 0, self.log(task)
        for task in self.tasks:
            self._tell(task, revision, world_size)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline_s, [self.log(task) for task in self.tasks]
            time.sleep(0.05)

    def end(self) -> None:
        for process in self.tasks.values():
            process.kill()
            process.wait()

    def _tell(self, task: int, revision: int, world_size: int) -> None:
        folder = self.directory / f"task-{self.attempt}-{task}"
        folder.mkdir(exist_ok=True)
        content = {"rank": task, "world_size": world_size, "revision": revision}
        write_whole(folder / "task.json", json.dumps(content))

    def _start(self, task: int, world_size: int) -> None:
        environment = os.environ | {
            "TOPMAST_WORKLOAD": "w",
            "TOPMAST_ATTEMPT": str(self.attempt),
            "TOPMAST_JOB": "main",
            "TOPMAST_TASK": str(task),
            "TOPMAST_TASK_FILE": str(self.directory / f"task-{self.attempt}-{task}" / "task.json"),
            "TOPMAST_CHECKPOINT_DIRECTORY": str(self.directory / "checkpoints"),
            "RANK": str(task),
            "WORLD_SIZE": str(world_size),
            "LOCAL_RANK": str(task),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
        }
        options = ("--steps", str(STEPS), "--seconds-per-step", "0.01", "--print-every", "10")
        with (self.directory / f"log-{self.attempt}-{task}").open("wb") as log:
            command = [sys.executable, str(EXAMPLES / self.example), *options]
            self.tasks[task] = subprocess.Popen(command, env=environment, stdout=log)


def losses(log: str) -> dict[int, float]:
    lines = [line.split() for line in log.splitlines() if " loss " in line]
    return {int(line[1]): float(line[3]) for line in lines}


WITHOUT_TORCH = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")


@pytest.mark.parametrize(
    "example", ["numpy_data_parallel.py", pytest.param("torch_data_parallel.py", marks=WITHOUT_TORCH)]
)
def test_the_loss_goes_on_through_growth_shrinking_and_the_loss_of_a_task(example: str, tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    first, second = Job(example, tmp_path), Job(example, tmp_path, attempt=2)
    try:
        first.resize(0, 2)
        first.until(lambda: "step 50 " in first.log(0))
        first.resize(1, 3)
        first.until(lambda: "rank 0 of 3" in first.log(0) and "tasks 3" in first.log(0))
        first.resize(2, 1)
        first.until(lambda: "rank 0 of 1" in first.log(0) and "tasks 1" in first.log(0))
        first.resize(3, 2)
        first.until(lambda: "tasks 2" in first.log(0).partition("rank 0 of 1")[2])
        first.tasks[1].kill()
        first.until(lambda: "lost a task" in first.log(0))
        first.tasks[0].send_signal(signal.SIGTERM)
        assert first.tasks[0].wait(PATIENCE_S) == 0
        second.resize(0, 2)
        second.until(lambda: f"finished at step {STEPS}" in second.log(0))
    finally:
        first.end()
        second.end()
    lost_at = int(first.log(0).partition("lost a task at step ")[2].split()[0])
    assert f"joined at step {lost_at} rank 0 of 2" in second.log(0)
    undisturbed = subprocess.run(
        [sys.executable, str(EXAMPLES / example), "--steps", str(STEPS), "--print-every", "10"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    expected, found = losses(undisturbed), losses(first.log(0)) | losses(second.log(0))
    for step, loss in expected.items():
        assert found[step] == pytest.approx(loss, abs=2e-6), step
