"""The runtime environments that were made on this machine, below `environments/` of TOPMAST_HOME.

- `<digest>/`: one environment; `environment.json` in it says that it is whole, and what it consists of.
- `<digest>.lock`: locked by whoever makes or removes it, and shared by the tasks that run in it: the system gives a lock back
  when its process ends. When it was changed last, it was used last.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from domain.runtime_environment import RuntimeEnvironment
from services.execution.folder_removal import remove_folder
from services.execution.prepared_environment import PreparedEnvironment
from services.execution.task_paths import write_whole

GREATEST_BYTES = 20 * 2**30
"""Of all environments together: those that were not used for longest, and are not in use, go first."""
LONGEST_UNUSED_S = 14 * 86_400.0
GREATEST_ENVIRONMENTS = 1_000
_READY = "environment.json"
_SIZE = "size"
_LOCK_SUFFIX = ".lock"
_LOOK_AGAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class EnvironmentPlace:
    """Where one environment is, or is to be."""

    folder: Path

    @property
    def lock(self) -> Path:
        return self.folder.with_name(self.folder.name + _LOCK_SUFFIX)

    def prepared(self) -> PreparedEnvironment | None:
        """What is there; None when nothing is ready."""
        try:
            return PreparedEnvironment.from_json((self.folder / _READY).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def finish(self, prepared: PreparedEnvironment) -> None:
        """From now on it is ready."""
        (self.folder / _SIZE).write_text(str(_size_bytes(self.folder)))
        write_whole(self.folder / _READY, prepared.to_json())

    def clear(self) -> None:
        """Removes what is there, whole or not."""
        if self.folder.is_dir():
            (self.folder / _READY).unlink(missing_ok=True)
            if not remove_folder(self.folder):
                raise OSError(errno.ENOTEMPTY, "cannot be removed", str(self.folder))

    def use(self) -> int | None:
        """Keeps others from removing it until the returned file descriptor is closed. Waits while it is being made.

        None when it is not ready.
        """
        descriptor = _locked(self.lock, fcntl.LOCK_SH)
        if descriptor is None:
            return None
        if self.prepared() is None:
            os.close(descriptor)
            return None
        os.utime(descriptor)
        return descriptor

    def is_ready(self) -> bool:
        """Whether it can be used at once."""
        return self.prepared() is not None

    @contextmanager
    def making(self) -> Iterator[bool]:
        """True: it is to be made now, and nobody else makes, uses or removes it meanwhile. False: it is ready.

        Waits while somebody else makes it, and not for those who use it: they may run for days.
        """
        while (descriptor := _locked(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
            if self.is_ready():
                yield False
                return
            time.sleep(_LOOK_AGAIN_S)
        try:
            yield not self.is_ready()
        finally:
            os.close(descriptor)


def place_of(home: Path, runtime: RuntimeEnvironment, attempt: str) -> EnvironmentPlace:
    """Where the environment belongs on this machine.

    What is made of files is the same for the same files and interpreter. What the machine itself has (conda environments,
    images) may change: each attempt looks anew.
    """
    described: dict[str, object] = asdict(runtime)
    if runtime.requirements or runtime.python:
        described["interpreter"] = _interpreter(runtime.python)
    elif runtime.conda or runtime.image:
        described["attempt"] = attempt
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    return EnvironmentPlace(home / "environments" / digest[:32])


def trim(environments: Path, now_s: float | None = None, *, keep: str = "") -> list[str]:
    """Removes environments that nothing uses: those unused for too long, and the least used while all together are too many
    or too large. One may be kept whatever its size: whoever has just made it is about to use it. Returns the names of those that
    are gone; one that cannot be removed stays."""
    now_s = time.time() if now_s is None else now_s
    found = sorted(
        (lock.stat().st_mtime, lock.name.removesuffix(_LOCK_SUFFIX)) for lock in environments.glob(f"*{_LOCK_SUFFIX}")
    )
    sizes = {name: _stored_size(environments / name) for _, name in found}
    total, count = sum(sizes.values()), len(found)
    removed: list[str] = []
    for used_s, name in found:
        place = EnvironmentPlace(environments / name)
        within = total <= GREATEST_BYTES and count <= GREATEST_ENVIRONMENTS and now_s - used_s <= LONGEST_UNUSED_S
        # What is not ready was given up, or is being made: then it is locked.
        if name == keep or (within and place.is_ready()):
            continue
        if _remove_unused(place):
            removed.append(name)
            total, count = total - sizes[name], count - 1
    return removed


def _remove_unused(place: EnvironmentPlace) -> bool:
    descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        with suppress(OSError):
            place.clear()
            place.lock.unlink(missing_ok=True)
            return True
        return False
    finally:
        os.close(descriptor)


def _locked(lock: Path, kind: int) -> int | None:
    """The descriptor of the lock's file, locked so; of the one that bears its name now, for it may have been removed meanwhile.

    None where it cannot be had at once and is not to be waited for.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            if os.fstat(descriptor).st_ino == lock.stat().st_ino:
                return descriptor
        except FileNotFoundError:
            # It was removed between the two.
            os.close(descriptor)
            continue
        except BlockingIOError:
            os.close(descriptor)
            return None
        os.close(descriptor)


def _interpreter(said: str) -> list[object]:
    """Which interpreter it is: another one under the same name has other packages."""
    path = Path(said or sys.executable)
    try:
        real = path.resolve()
        return [str(path), str(real), real.stat().st_mtime_ns]
    except OSError:
        return [str(path)]


def _stored_size(folder: Path) -> int:
    try:
        return int((folder / _SIZE).read_text())
    except (OSError, ValueError):
        return 0


def _size_bytes(folder: Path) -> int:
    total, waiting = 0, [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total
