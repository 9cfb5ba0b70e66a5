"""A network, mounts and shared memory of the run's own: what it does to them touches nothing else of the machine.

It needs root and Linux. Where it cannot be had the run goes on without those faults that need it, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

_INSIDE_VARIABLE = "TOPMAST_CHAOS_PRIVATE"
_UNSHARE = ("unshare", "--net", "--mount", "--ipc")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the place is the kernel's


def enter(arguments: Sequence[str]) -> bool:
    """Starts this program anew in a world of its own, where that can be had; True when this process is in one."""
    if os.environ.get(_INSIDE_VARIABLE):
        _prepare()
        return True
    if _possible():
        _begin_anew(arguments)
    return False


def _begin_anew(arguments: Sequence[str]) -> NoReturn:
    command = [*_UNSHARE, sys.executable, "-m", "tests.chaos.driver", *arguments]
    os.execvpe(command[0], command, {**os.environ, _INSIDE_VARIABLE: "1"})  # noqa: S606 - our own program


def _possible() -> bool:
    if not all(shutil.which(program) for program in ("unshare", "ip", "iptables", "ss", "mount")):
        return False
    trial = "ip link set lo up && iptables -t nat -L && mount -t tmpfs none /dev/shm"
    return subprocess.run([*_UNSHARE, "sh", "-c", trial], capture_output=True, check=False).returncode == 0


def _prepare() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(_SHARED_MEMORY)], check=True)


def mount_disk(folder: Path, size_mib: int) -> None:
    """A disk of that size is at the folder until this process and its children have ended."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_mib}m,mode=755", "tmpfs", str(folder)], check=True)


def shared_memory_left() -> list[str]:
    """What is in shared memory of this world: files, and segments of System V."""
    files = [str(path) for path in sorted(_SHARED_MEMORY.iterdir())]
    segments = Path("/proc/sysvipc/shm").read_text(encoding="ascii").splitlines()[1:]
    return [*files, *(f"segment {line.split()[1]}" for line in segments)]
