"""Holds the processes of a task together by a control group (cgroup v2), where such may be made, and limits its CPU and memory there.

No process leaves its group by detaching itself, by clearing its environment or when what watched over it is killed: so what is left
of a task is found again by the name of its group, and ended through it. For that any folder of cgroup v2 does that may be written; limits
need one for which the kernel offers `cpu` and `memory`. Without those CPUs are limited by affinity alone, and memory by a watch
(`services.execution.memory_watch`).

The folder is the one that TOPMAST_CGROUP names (one that was delegated to Topmast, without processes of its own), else
`topmast` below the root, below the second root of a machine that has both versions, or below the group of this process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

FOLDER_VARIABLE = "TOPMAST_CGROUP"
_ROOT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
_CONTROLLERS = ("cpu", "memory")
_PERIOD_US = 100_000
_LOOK_AGAIN_S = 0.01


class Holding(StrEnum):
    """By what the processes of a task are held together on a machine, and limited."""

    LIMITED_GROUPS = "control groups with limits"
    GROUPS = "control groups; limits by affinity and a watch"
    NOTHING = "no control groups: parents and environment; limits by affinity and a watch"


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One task's. `limited`: the kernel limits there what its processes use together."""

    folder: Path
    limited: bool = True

    def limit(self, millicpus: int, memory_bytes: int | None) -> None:
        """What its processes may use together from now on; None: as much memory as there is. Raises OSError."""
        if not self.limited:
            return
        quota_us = max(1_000, millicpus * _PERIOD_US // 1000)
        (self.folder / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}", encoding="ascii")
        (self.folder / "memory.max").write_text("max" if memory_bytes is None else str(memory_bytes), encoding="ascii")

    def add(self, process_id: int) -> None:
        """The process, and all that it starts from now on, belongs to the group. Raises OSError."""
        (self.folder / "cgroup.procs").write_text(str(process_id), encoding="ascii")

    def kernel_kills(self) -> int:
        """How many of its processes the kernel has killed for lack of memory; 0 where it does not say."""
        try:
            lines = (self.folder / "memory.events").read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def kill(self) -> bool:
        """Kills everything in it, what is just being started too; whether nothing was there. Raises OSError when that may not be done."""
        left = self.process_ids()
        if not left:
            return True
        kill_file = self.folder / "cgroup.kill"
        if kill_file.exists():
            kill_file.write_text("1", encoding="ascii")
            return False
        for process_id in left:  # before Linux 5.14
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        return False

    def process_ids(self) -> list[int]:
        """What runs in it; none when it is gone."""
        try:
            return [int(line) for line in (self.folder / "cgroup.procs").read_text(encoding="ascii").split()]
        except FileNotFoundError:
            return []

    def end(self, within_s: float = 10.0) -> None:
        """Kills everything in it, waits until nothing is left, and removes it. Raises OSError where that is not possible in time."""
        give_up_at_s = time.monotonic() + within_s
        while not self.kill() and time.monotonic() < give_up_at_s:
            time.sleep(_LOOK_AGAIN_S)
        self.remove()

    def remove(self) -> None:
        """Nothing of the task runs any more. Raises OSError when something does."""
        self.folder.rmdir()


def control_group(
    name: str, environment: Mapping[str, str] = os.environ, root: Path = _ROOT, own: Path = _OWN
) -> ControlGroup | None:
    """The group of the task of that name, which is the name of a folder; None where there can be none."""
    for parent in _parents(environment, root, own):
        try:
            limited = _prepared(parent, named=FOLDER_VARIABLE in environment)
            folder = parent / name
            folder.mkdir(exist_ok=True)
        except OSError:
            continue
        return ControlGroup(folder, limited)
    return None


def how_held(environment: Mapping[str, str] = os.environ, root: Path = _ROOT, own: Path = _OWN) -> Holding:
    """What holds the tasks that are started on this machine from now on."""
    for parent in _parents(environment, root, own):
        try:
            limited = _prepared(parent, named=FOLDER_VARIABLE in environment)
        except OSError:
            continue
        if os.access(parent, os.W_OK):
            return Holding.LIMITED_GROUPS if limited else Holding.GROUPS
    return Holding.NOTHING


def control_groups(
    environment: Mapping[str, str] = os.environ, root: Path = _ROOT, own: Path = _OWN
) -> Iterator[ControlGroup]:
    """Those that were made for tasks on this machine and are still there, in the order of their names."""
    for parent in _parents(environment, root, own):
        try:
            folders = sorted(folder for folder in parent.iterdir() if folder.is_dir())
        except OSError:
            continue
        yield from (ControlGroup(folder) for folder in folders)


def _parents(environment: Mapping[str, str], root: Path, own: Path) -> list[Path]:
    """Where groups of tasks may be, the best place first."""
    if said := environment.get(FOLDER_VARIABLE, ""):
        return [Path(said)]
    second_root = root / "unified"
    places = [root, second_root]
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("0::/") and len(line) > len("0::/"):
            # Of a task of another service, perhaps: then one is in the other.
            mount = second_root if (second_root / "cgroup.controllers").exists() else root
            places.append(mount / line.removeprefix("0::/"))
    return [place / "topmast" for place in places]


def _prepared(parent: Path, *, named: bool) -> bool:
    """Makes the folder in which groups are made; whether the kernel limits them. Raises OSError where it can be none."""
    if not named:
        (parent.parent / "cgroup.controllers").read_text(encoding="ascii")
        with suppress(OSError):
            (parent.parent / "cgroup.subtree_control").write_text(_enabling(), encoding="ascii")
        parent.mkdir(exist_ok=True)
    offered = (parent / "cgroup.controllers").read_text(encoding="ascii").split()
    if not set(_CONTROLLERS) <= set(offered):
        return False
    try:
        (parent / "cgroup.subtree_control").write_text(_enabling(), encoding="ascii")
    except OSError:
        return False
    return True


def _enabling() -> str:
    return " ".join(f"+{controller}" for controller in _CONTROLLERS)
