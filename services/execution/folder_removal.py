"""Folders that tasks and installers have filled are removed, whatever these have made in them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import structlog

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_log = structlog.get_logger(__name__)


def remove_folder(folder: Path) -> bool:
    """Whether it is gone, however deep it is, and also where a task had made folders read-only."""
    if not os.path.lexists(folder):
        return True
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink()
        else:
            _remove_tree(folder)
    except OSError as error:
        _log.warning("a folder cannot be removed", folder=str(folder), error=str(error))
        return False
    return True


def _remove_tree(folder: Path) -> None:
    """Folders in it are moved to its top, and emptied there: however deep tasks have made it, no path is long and nothing recurs."""
    folder.chmod(0o700)
    top = os.open(folder, _FOLDER_FLAGS)
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=top)
            try:
                waiting += _emptied(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _emptied(folder: int, top: int) -> list[str]:
    """Removes the files in a folder, and moves the folders in it to the top; returns their names there."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if is_folder:
            moved.append(secrets.token_hex(16))
            # Who may not write into a folder may not move it either.
            os.chmod(name, 0o700, dir_fd=folder)
            os.rename(name, moved[-1], src_dir_fd=folder, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=folder)
    return moved
