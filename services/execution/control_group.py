"""Limits of CPU and memory for all processes of a task, by control groups (cgroup v2), where these may be written.

The folder is the one that TOPMAST_CGROUP names (one that was delegated to Topmast, without processes of its own), else
`topmast` below the root. Where the kernel does not offer `cpu` and `memory` there, or the folder cannot be written, there are
no such limits: CPUs are then limited by affinity alone, and memory by a watch (`services.execution.memory_watch`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "TOPMAST_CGROUP"
_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("cpu", "memory")
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One task's."""

    folder: Path

    def limit(self, millicpus: int, memory_bytes: int | None) -> None:
        """What its processes may use together from now on; None: as much memory as there is. Raises OSError."""
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

    def remove(self) -> None:
        """Nothing of the task runs any more. Raises OSError when something does."""
        self.folder.rmdir()


def control_group(name: str, environment: Mapping[str, str] = os.environ, root: Path = _ROOT) -> ControlGroup | None:
    """The group of the task of that name, which is the name of a folder; None where there can be none."""
    said = environment.get(FOLDER_VARIABLE, "")
    parent = Path(said) if said else root / "topmast"
    try:
        if not said:
            _require(root)
            (root / "cgroup.subtree_control").write_text(_enabling(), encoding="ascii")
            parent.mkdir(exist_ok=True)
        _require(parent)
        (parent / "cgroup.subtree_control").write_text(_enabling(), encoding="ascii")
        folder = parent / name
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return ControlGroup(folder)


def _require(folder: Path) -> None:
    """Raises OSError where the kernel does not offer the controllers."""
    offered = (folder / "cgroup.controllers").read_text(encoding="ascii").split()
    if missing := [controller for controller in _CONTROLLERS if controller not in offered]:
        raise OSError(f"{folder} has no controller {missing[0]}")


def _enabling() -> str:
    return " ".join(f"+{controller}" for controller in _CONTROLLERS)
