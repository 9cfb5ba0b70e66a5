"""The templates of launchers: each is accepted by a service as it stands, and what they start meets and ends as they say."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from formats.workload_file import WorkloadDocument, parse_workload_documents
from services.tiers.free_port import free_port
from services.wire.workloads import specification_to_proto
from tests.global_scheduler_service.service import Service, in_service
from topmast.v1 import global_scheduler_pb2 as messages

LAUNCHERS = Path(__file__).parents[2] / "examples" / "launchers"
TEMPLATES = ("jax_distributed.yaml", "several_processes.yaml", "torch_ddp.yaml", "torchrun.yaml")
START = LAUNCHERS / "start_processes.py"


def read(name: str) -> WorkloadDocument:
    (document,) = parse_workload_documents((LAUNCHERS / name).read_text(), name)
    return document


def task(command: Sequence[str], rank: int, tasks: int, port: int, folder: Path) -> subprocess.Popen[str]:
    """One task of a job, as a cluster manager starts it."""
    return subprocess.Popen(
        command,
        cwd=LAUNCHERS,
        env=os.environ
        | {
            "RANK": str(rank),
            "WORLD_SIZE": str(tasks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(tasks),
            "TOPMAST_CHECKPOINT_DIRECTORY": str(folder),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(LAUNCHERS.parents[1]), os.environ.get("PYTHONPATH", "")]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def all_of(command: Sequence[str], tasks: int, folder: Path) -> list[tuple[int, str, str]]:
    """Exit code, standard output and standard error of each task."""
    port = free_port("127.0.0.1")
    running = [task(command, rank, tasks, port, folder) for rank in range(tasks)]
    try:
        texts = [one.communicate(timeout=240.0) for one in running]
    finally:
        for one in running:
            one.kill()
    return [(one.returncode, *text) for one, text in zip(running, texts, strict=True)]


def command_of(name: str, steps: int) -> list[str]:
    """What the template runs, for so many steps, with the Python of this process."""
    (job,) = read(name).specification.jobs
    words = getattr(job.entry_point, "arguments")  # noqa: B009 - all of them are commands
    return [sys.executable if word == "python" else str(steps) if word == "300" else word for word in words]


def test_every_template_is_known_here() -> None:
    assert sorted(path.name for path in LAUNCHERS.glob("*.yaml")) == list(TEMPLATES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_scripts_of_templates_stand_beside_them(name: str) -> None:
    document = read(name)
    assert document.working_directory == "."
    words = " ".join(command_of(name, 300)).split()
    scripts = [word for word in words if word.endswith(".py")]
    assert scripts
    assert [script for script in scripts if not (LAUNCHERS / script).is_file()] == []


def test_a_service_would_accept_every_template(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        for name in TEMPLATES:
            request = messages.SubmitWorkloadRequest(
                specification=specification_to_proto(read(name).specification), dry_run=True
            )
            answer = await service.stub.SubmitWorkload(request)
            assert [host.region for host in answer.hosts], name

    in_service(database_url, scenario)


def test_several_processes_of_several_tasks_are_numbered_through(tmp_path: Path) -> None:
    # In one write: processes share the pipe.
    names = "('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'NODE_RANK')"
    script = f"import os; os.write(1, (' '.join(os.environ[name] for name in {names}) + chr(10)).encode())"
    ended = all_of([sys.executable, str(START), "--processes", "2", "--", sys.executable, "-c", script], 3, tmp_path)
    assert [code for code, _, _ in ended] == [0, 0, 0]
    lines = sorted(line for _, text, _ in ended for line in text.splitlines())
    assert lines == [f"{rank} 6 {rank % 2} 2 {rank // 2}" for rank in range(6)]


def test_one_that_fails_ends_the_others(tmp_path: Path) -> None:
    script = "import os, sys, time; sys.exit(7) if os.environ['LOCAL_RANK'] == '1' else time.sleep(3600)"
    ((code, _, _),) = all_of(
        [sys.executable, str(START), "--processes", "3", "--", sys.executable, "-c", script], 1, tmp_path
    )
    assert code == 7


def test_all_are_asked_to_stop(tmp_path: Path) -> None:
    script = (
        "import os, signal, threading; stop = threading.Event();"
        "signal.signal(signal.SIGTERM, lambda *_: stop.set());"
        "os.write(1, b'ready\\n'); stop.wait(); os.write(1, b'saved\\n')"
    )
    command = [sys.executable, str(START), "--processes", "2", "--", sys.executable, "-c", script]
    with task(command, 0, 1, free_port("127.0.0.1"), tmp_path) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == ["ready\n"] * 2
        running.send_signal(signal.SIGTERM)
        assert running.stdout.read() == "saved\nsaved\n"
    assert running.returncode == 0


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", ["torch_ddp.yaml", "several_processes.yaml"])
def test_torch_trains_and_goes_on(name: str, tmp_path: Path) -> None:
    for steps, before in ((100, 0), (150, 100)):
        ended = all_of(command_of(name, steps), 2, tmp_path)
        assert [code for code, _, _ in ended] == [0, 0], ended
        printed = ended[0][1]
        assert f"step {steps} on " in printed
        assert (f"goes on at step {before}" in printed) is (before > 0)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_trains_and_goes_on(tmp_path: Path) -> None:
    for steps, before in ((100, 0), (150, 100)):
        ended = all_of(command_of("jax_distributed.yaml", steps), 2, tmp_path)
        assert [code for code, _, _ in ended] == [0, 0], ended
        assert f"step {steps} on 2 processes" in ended[0][1]
        assert (f"goes on at step {before}" in ended[0][1]) is (before > 0)
