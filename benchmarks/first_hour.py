"""What a stranger waits for, and what an idle service costs: `topmast up`, a first output, and a minute of nothing.

Each start is a real `topmast up` in a process of its own; the home is new at the first and kept for the others. Costs are those of
all processes that belong to the service, PostgreSQL's among them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.measurement import report
from services.database.embedded import EmbeddedLayout
from services.database.server_processes import find_server_processes
from services.runtime.home import HomeLayout
from services.runtime.host_record import read_host_record

BUDGET = "ready <= 10 s, first output <= 15 s after `up` was typed; idle <= 600 MiB and <= 5 % of a core"
_EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_MARK_VARIABLE = "RUN_OF_A_FIRST_HOUR"
_LOOK_EVERY_S = 0.02
_SETTLE_S = 10.0
_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Start:
    """One `up`: by the clock and of the processors until each stage was over, and until the first output."""

    ready_s: float
    stages_s: dict[str, float]
    stages_cpu_s: dict[str, float]
    first_output_s: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=3, help="the first makes the database")
    parser.add_argument("--idle-s", type=float, default=60.0)
    parser.add_argument("--fleet", type=Path, default=_EXAMPLES / "fleet.yaml")
    parser.add_argument("--tenants", type=Path, default=_EXAMPLES / "tenants.yaml")
    parser.add_argument("--tenant", default="vision", help="whose the first workload is")
    parser.add_argument("up", nargs="*", help="further options of `topmast up`, after --")
    arguments = parser.parse_args()
    os.environ[_MARK_VARIABLE] = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="topmast-first-hour-") as folder:
        home = Path(folder)
        starts: list[Start] = []
        downs_s: list[float] = []
        idle: dict[str, object] = {}
        try:
            for number in range(arguments.starts):
                starts.append(_start(home, arguments))
                if number == arguments.starts - 1:
                    idle = _idle_cost(home, arguments.idle_s)
                began = time.monotonic()
                _topmast("down", "--home", str(home))
                downs_s.append(time.monotonic() - began)
        finally:
            _topmast("down", "--home", str(home))
    warm = starts[1:] or starts
    report(
        "first_hour",
        {"fleet": arguments.fleet.name, "starts": len(starts), "options": arguments.up},
        [start.ready_s for start in warm],
        BUDGET,
        {
            "first_start_s": round(starts[0].ready_s, 2),
            "first_output_s": [start.first_output_s for start in starts],
            "stages_s": [start.stages_s for start in starts],
            "stages_cpu_s": [start.stages_cpu_s for start in starts],
            "down_s": [round(one, 2) for one in downs_s],
            "idle": idle,
            "load_average": os.getloadavg()[0],
        },
    )


def _start(home: Path, arguments: argparse.Namespace) -> Start:
    """Brings the service up, watching its stages, and has something said by a first workload."""
    began = time.monotonic()
    options = ["--home", str(home), "--port", "0", "--fleet", str(arguments.fleet), "--tenants", str(arguments.tenants)]
    up = subprocess.Popen(_command("up", *options, *arguments.up), stdout=subprocess.DEVNULL)
    stage, stage_began, stage_cpu_s = "the command", began, 0.0
    stages_s: dict[str, float] = {}
    stages_cpu_s: dict[str, float] = {}
    while up.poll() is None:
        time.sleep(_LOOK_EVERY_S)
        record = read_host_record(HomeLayout(home).host_record)
        now_busy_with = (record.stage or record.state.value) if record is not None else stage
        if now_busy_with != stage:
            now, cpu_s = time.monotonic(), _cpu_s(home)
            stages_s[stage] = round(now - stage_began, 2)
            stages_cpu_s[stage] = round(cpu_s - stage_cpu_s, 2)
            stage, stage_began, stage_cpu_s = now_busy_with, now, cpu_s
    if up.returncode != 0:
        sys.exit(f"topmast up ended with {up.returncode}")
    ready_s = time.monotonic() - began
    if "--emulate" in arguments.up:
        return Start(ready_s, stages_s, stages_cpu_s, None)
    run = ("run", "--tenant", arguments.tenant, "--gpus", "1", "-f", "--", "echo", "hi")
    said = subprocess.run(
        _command(*run), capture_output=True, text=True, check=True, env={**os.environ, "TOPMAST_HOME": str(home)}
    ).stdout
    if "hi" not in said:
        sys.exit(f"the first workload said: {said}")
    return Start(ready_s, stages_s, stages_cpu_s, round(time.monotonic() - began, 2))


def _idle_cost(home: Path, idle_s: float) -> dict[str, object]:
    """Memory and processor time of all processes while nothing is asked of the service."""
    time.sleep(_SETTLE_S)
    before = {process: _cpu_of(process) for process in _processes(home)}
    began = time.monotonic()
    time.sleep(idle_s)
    passed_s = time.monotonic() - began
    used = {process: _cpu_of(process) - before.get(process, 0.0) for process in _processes(home)}
    pss = {process: _pss_bytes(process) for process in used}
    return {
        "processes": len(used),
        "pss_mib": round(sum(pss.values()) / _MIB),
        "rss_mib": round(sum(_rss_bytes(process) for process in used) / _MIB),
        "cpu_share_of_a_core": round(sum(used.values()) / passed_s, 4),
        "by_process": [
            {"what": _name(process), "pss_mib": round(pss[process] / _MIB, 1), "cpu_share": round(one / passed_s, 4)}
            for process, one in sorted(used.items(), key=lambda item: (-item[1], item[0].pid))
        ],
    }


def _processes(home: Path) -> list[psutil.Process]:
    """Everything that belongs to the service: what has our mark, and PostgreSQL's processes."""
    mark, own = os.environ[_MARK_VARIABLE], os.getpid()
    found = {process.pid: process for process in find_server_processes(EmbeddedLayout.of(home).data)}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != own and process.environ().get(_MARK_VARIABLE) == mark:
                found[process.pid] = process
                # Ray's agents have written their names over their environment.
                found.update({child.pid: child for child in process.children(recursive=True)})
    return [found[process_id] for process_id in sorted(found)]


def _cpu_s(home: Path) -> float:
    return sum(map(_cpu_of, _processes(home)))


def _cpu_of(process: psutil.Process) -> float:
    """Of the process and of those of its children that have ended."""
    with suppress(psutil.Error):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


def _pss_bytes(process: psutil.Process) -> int:
    """What it shares with others counts in parts."""
    with suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _rss_bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.memory_info().rss)
    return 0


def _name(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        words: Iterable[str] = process.cmdline() or [process.name()]
        return " ".join(Path(word).name if word.startswith("/") else word for word in words)[:80]
    return "ended"


def _topmast(*arguments: str) -> None:
    subprocess.run(_command(*arguments), stdout=subprocess.DEVNULL, check=False)


def _command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-c", "from services.command_line.main import main; main()", *arguments]


if __name__ == "__main__":
    main()
