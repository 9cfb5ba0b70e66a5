"""Files that are there whole or not at all; what is no regular file is written through."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OF_THE_SYSTEM = (Path("/dev"), Path("/proc"))


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to, with the same ending; it takes the place of `path` at the end, and goes if anything fails.

    Where a link points to a file, that file is replaced and the link stays. A file that was there keeps its permissions.
    A device, a pipe or a socket is written to as it is: nobody could go back on what has gone through it, and it must not
    be replaced. Raises OSError, before anything is written, where the file that is there may not be written.
    """
    if _is_written_through(path):
        yield path
        return
    place = path.resolve() if path.is_symlink() else path
    if not place.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "its folder is not there", str(path))
    before = place.stat() if place.exists() else None
    if before is not None and not os.access(place, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    written = place.with_name(f".part-{path.name}")
    try:
        yield written
        if before is not None:
            _take_over(before, written)
        written.replace(place)
    finally:
        written.unlink(missing_ok=True)


def _is_written_through(path: Path) -> bool:
    try:
        kind = path.stat().st_mode
    except OSError:
        # Nothing is there, or a link to nothing.
        return False
    # /dev/stdout is a regular file where the shell sends it into one, which this process must not take from the shell.
    return not stat.S_ISREG(kind) or any(path.absolute().is_relative_to(folder) for folder in _OF_THE_SYSTEM)


def _take_over(before: os.stat_result, written: Path) -> None:
    """Gives the new file the permissions of the old one, and its owner where this process may."""
    if os.geteuid() == 0:
        os.chown(written, before.st_uid, before.st_gid)
    written.chmod(stat.S_IMODE(before.st_mode))
