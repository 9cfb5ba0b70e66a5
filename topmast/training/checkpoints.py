"""Checkpoints on disk: complete or not there at all, and never from an attempt that is no longer the newest.

One directory per job of a workload (`<checkpoint directory>/<job>/`) holds

- `checkpoint-<attempt>-<number>/`: one checkpoint each, written under another name, brought to the disk and renamed;
- `fence`: the newest attempt that has begun; `lock`: held while the fence is checked and a checkpoint is renamed;
- `elsewhere`: the newest checkpoint that another machine has put into the store, if there is one.

A stale attempt finds a greater number in the fence and gives up (design I8: it can change nothing).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import NamedTuple

from topmast.training.state_format import State, read_state, write_state

_log = logging.getLogger(__name__)

FORMAT = 1
_NAME = re.compile(r"checkpoint-(\d+)-(\d+)")
_ABOUT_FILE = "checkpoint.json"
_ELSEWHERE_FILE = "elsewhere"
_WRITING_PREFIX = ".writing-"
_LOOK_AGAIN_S = 0.05


class StaleAttempt(RuntimeError):
    """A newer attempt of the same workload has begun: this one must not write any more."""


class Checkpoint(NamedTuple):
    """A complete checkpoint. Of two the one with the greater attempt, then the greater number, is newer."""

    attempt: int
    number: int
    path: Path
    progress: float


class CheckpointStore:
    """The checkpoints of one job, as one attempt sees them. Keeps the newest `keep`."""

    def __init__(self, directory: Path, attempt: int, keep: int) -> None:
        if keep < 1:
            raise ValueError(f"at least one checkpoint must be kept, not {keep}")
        self._directory = directory
        self._attempt = attempt
        self._keep = keep

    def begin(self) -> None:
        """Puts up the fence; raises StaleAttempt when a newer attempt has begun already."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with self._locked():
            self._check_fence()
            write_whole(self._directory / "fence", str(self._attempt))

    def clear_leftovers(self) -> None:
        """Removes what older attempts had begun to write when they were killed. For the only writer of the job."""
        for leftover in self._directory.glob(f"{_WRITING_PREFIX}*"):
            rmtree(leftover, ignore_errors=True)

    def save(self, state: State, progress: float) -> Checkpoint:
        """Writes a checkpoint; when this returns it survives the loss of the machine's memory.

        Raises StaleAttempt when a newer attempt has begun, TypeError when the state holds what cannot be kept.
        """
        writing = self._directory / f"{_WRITING_PREFIX}{self._attempt}-{os.getpid()}"
        rmtree(writing, ignore_errors=True)
        writing.mkdir()
        try:
            write_state(state, writing)
            about = {"format": FORMAT, "attempt": self._attempt, "progress": progress, "saved_at_s": time.time()}
            write_whole(writing / _ABOUT_FILE, json.dumps(about))
            _sync_directory(writing)
            with self._locked():
                self._check_fence()
                number = max((found.number for found in found_in(self._directory)), default=0) + 1
                path = self._directory / f"checkpoint-{self._attempt:06d}-{number:08d}"
                writing.rename(path)
                _sync_directory(self._directory)
        except FileNotFoundError:
            # A newer attempt clears away what is half written: then that is the reason.
            self._check_fence()
            raise
        finally:
            rmtree(writing, ignore_errors=True)
        self._prune()
        return Checkpoint(self._attempt, number, path, progress)

    def restore(self) -> tuple[Checkpoint, State] | None:
        """The newest checkpoint that can be read, and its state; None when there is none.

        A damaged one is passed over, with a warning, for the one before it.
        """
        for checkpoint in reversed(found_in(self._directory)):
            try:
                return checkpoint, read_state(checkpoint.path)
            except (OSError, ValueError) as error:
                _log.warning("checkpoint %s cannot be read (%s): trying the one before it", checkpoint.path, error)
        return None

    def wait_for(self, progress: float, timeout_s: float) -> Checkpoint | None:
        """Waits until this attempt has a checkpoint of at least that progress; None when it takes too long.

        Where the job's first task is on another machine, and checkpoints go to a store, it may be there alone: the path is
        then that which it would have here.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            for newest in (next(reversed(found_in(self._directory)), None), _elsewhere(self._directory)):
                if newest is not None and newest.attempt == self._attempt and newest.progress >= progress:
                    return newest
            if time.monotonic() >= deadline_s:
                return None
            time.sleep(_LOOK_AGAIN_S)

    def _check_fence(self) -> None:
        newest = _read_fence(self._directory)
        if newest > self._attempt:
            raise StaleAttempt(f"attempt {self._attempt} is stale: attempt {newest} has begun")

    def _prune(self) -> None:
        for checkpoint in found_in(self._directory)[: -self._keep]:
            rmtree(checkpoint.path, ignore_errors=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._directory / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def found_in(directory: Path) -> list[Checkpoint]:
    """Every complete checkpoint of a job, oldest first."""
    found: list[Checkpoint] = []
    if not directory.is_dir():
        return found
    for path in directory.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is None:
            continue
        try:
            progress = float(json.loads((path / _ABOUT_FILE).read_text(encoding="utf-8"))["progress"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            # Being pruned by its writer, or damaged: either way it cannot be restored.
            _log.debug("%s is no checkpoint: %s", path, error)
            continue
        found.append(Checkpoint(int(name[1]), int(name[2]), path, progress))
    return sorted(found)


def newest_progress(directory: Path, attempt: int) -> float | None:
    """The progress of the newest checkpoint in a workload's checkpoint directory that this attempt or an older one
    wrote: the greatest over its jobs. None when there is none.
    """
    if not directory.is_dir():
        return None
    newest: list[float] = []
    for job in directory.iterdir():
        own = [checkpoint for checkpoint in found_in(job) if checkpoint.attempt <= attempt]
        newest += [checkpoint.progress for checkpoint in own[-1:]]
    return max(newest, default=None)


def note_elsewhere(directory: Path, name: str, progress: float) -> None:
    """For those who wait in a job's directory: a checkpoint of that name is in the store, from another machine."""
    directory.mkdir(parents=True, exist_ok=True)
    write_whole(directory / _ELSEWHERE_FILE, json.dumps({"name": name, "progress": progress}))


def _elsewhere(directory: Path) -> Checkpoint | None:
    try:
        written = json.loads((directory / _ELSEWHERE_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    name = _NAME.fullmatch(written["name"])
    if name is None:
        return None
    return Checkpoint(int(name[1]), int(name[2]), directory / name[0], float(written["progress"]))


def last_attempt(directory: Path) -> int:
    """The newest attempt that has begun in a job's directory; 0 when none has."""
    return _read_fence(directory)


def _read_fence(directory: Path) -> int:
    try:
        return int((directory / "fence").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0


def write_whole(path: Path, content: str) -> None:
    """Writes a small file down to the disk so that a reader sees all of it or nothing."""
    written = path.with_name(f".{path.name}.{os.getpid()}")
    with written.open("w", encoding="utf-8") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    written.replace(path)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
