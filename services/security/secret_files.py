"""Files of a home are its owner's alone: what is made from now on, what a folder is made with, and what was left too open."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

TASK_UMASK_VARIABLE: Final = "TOPMAST_TASK_UMASK"
"""In the environment of the service: the mask of whoever started it, which is for the files of its tasks."""

_OURS_ALONE: Final = 0o077
_PASSED_AT_MOST: Final = 0o066
"""Of a folder: that others may pass through it (not read it) is what PostgreSQL, or tasks of another user, need."""
_NOT_OURS_TO_CLOSE: Final = ("environments", "ray")
"""Tasks of other users run what is in there; and what Ray makes goes with it. Both are below a folder that is closed."""


def keep_files_private() -> None:
    """Whatever this process, and what it starts, makes from now on is for its user alone; tasks get back the mask that was."""
    former = os.umask(_OURS_ALONE)
    os.environ.setdefault(TASK_UMASK_VARIABLE, f"{former:03o}")


def umask_of_tasks(environment: Mapping[str, str]) -> int | None:
    """The mask for the files of tasks; None: it was never changed."""
    said = environment.get(TASK_UMASK_VARIABLE, "")
    return int(said, 8) if said else None


def make_private_folders(home: Path, folder: Path) -> None:
    """Makes the folder, which is the home or below it, and what is missing on the way there from the home, for our user alone."""
    home.parent.mkdir(parents=True, exist_ok=True)
    for each in [home, *(parent for parent in reversed(folder.parents) if home in parent.parents), folder]:
        each.mkdir(mode=0o700, exist_ok=True)


def close_home(home: Path) -> int:
    """Takes away what others may read or write in a home that was left open by a former version; how much that was.

    Only where the home, or something that is directly in it, is open: to look at everything takes long where there is much.
    """
    if not home.is_dir() or not any(_too_open(path) for path in (home, *home.iterdir())):
        return 0
    closed = 0
    for path in _ours_below(home):
        with suppress(FileNotFoundError):
            mode = path.lstat().st_mode
            if _too_open(path):
                path.chmod(stat.S_IMODE(mode) & ~(_PASSED_AT_MOST if stat.S_ISDIR(mode) else _OURS_ALONE))
                closed += 1
    return closed


def _too_open(path: Path) -> bool:
    """Whether others may do with it what they need not; what belongs to others is theirs to close."""
    status = path.lstat()
    if status.st_uid != os.geteuid() or stat.S_ISLNK(status.st_mode):
        return False
    return bool(status.st_mode & (_PASSED_AT_MOST if stat.S_ISDIR(status.st_mode) else _OURS_ALONE))


def _ours_below(home: Path) -> Iterator[Path]:
    yield home
    for entry in sorted(home.iterdir()):
        yield entry
        if entry.name not in _NOT_OURS_TO_CLOSE and entry.is_dir() and not entry.is_symlink():
            for folder, folders, files in os.walk(entry):
                yield from (Path(folder) / name for name in (*sorted(folders), *sorted(files)))
