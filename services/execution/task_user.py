"""As whom the processes of tasks run on a machine, and what they are given there."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from services.execution.task_reaper import LaunchUser

NEVER_GIVEN = frozenset(
    {"PGPASSFILE", "PGPASSWORD", "RAY_AUTH_TOKEN", "TOPMAST_DATABASE_URL", "TOPMAST_TOKEN", "TOPMAST_TOKEN_FILE"}
)
"""What no setting can give to tasks."""

ROOT = 0
_MAY_PASS = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Of the section `tasks` in scheduler.yaml. `run_as` "": as the user whom the service runs as; `variables`: those of the service's
    environment that tasks get besides the usual ones."""

    run_as: str = ""
    root_allowed: bool = True
    variables: tuple[str, ...] = ()


class UserImpossible(Exception):
    """No task can run so on this machine; says which setting does not fit it."""


@dataclass(frozen=True, slots=True)
class TaskUser:
    """Somebody else than this process runs as."""

    name: str
    user_id: int
    group_id: int
    groups: tuple[int, ...]
    home: Path

    def launched(self) -> LaunchUser:
        return {"user": self.user_id, "group": self.group_id, "groups": list(self.groups)}

    def variables(self) -> dict[str, str]:
        return {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}

    def may_pass(self, folder: Path) -> bool:
        """Whether this user may go through a folder to what is in it."""
        status = folder.stat()
        if status.st_uid == self.user_id:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.group_id or status.st_gid in self.groups:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)

    def give(self, home: Path, folders: Iterable[Path]) -> None:
        """These folders below the home, with all that is in them, are this user's from now on, and can be reached; nothing else of the home
        can be read for it. Raises UserImpossible where what the home is in cannot be passed, and OSError."""
        for ancestor in reversed(home.absolute().parents):
            if not self.may_pass(ancestor):
                raise UserImpossible(
                    f"tasks.run_as: {self.name} may not pass {ancestor}, in which TOPMAST_HOME is: allow it"
                    f" (chmod o+x {ancestor}), or have TOPMAST_HOME elsewhere"
                )
        for folder in folders:
            self.reach(home, folder)
            self._own(folder)

    def reach(self, home: Path, folder: Path) -> None:
        """What is between the home and this folder can be passed. Raises OSError."""
        for passed in [home, *(parent for parent in reversed(folder.parents) if home in parent.parents)]:
            if not self.may_pass(passed):
                passed.chmod(stat.S_IMODE(passed.stat().st_mode) | _MAY_PASS)

    def _own(self, folder: Path) -> None:
        if not folder.is_dir():
            os.chown(folder, self.user_id, self.group_id, follow_symlinks=False)
            return
        for _, folders, files, descriptor in os.fwalk(folder):
            os.fchown(descriptor, self.user_id, self.group_id)
            for name in (*folders, *files):
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                # A second name of a file that is elsewhere, too, is nobody's to give.
                if stat.S_ISDIR(status.st_mode) or status.st_nlink == 1:
                    os.chown(name, self.user_id, self.group_id, dir_fd=descriptor, follow_symlinks=False)


def task_user(settings: TaskSettings) -> TaskUser | None:
    """As whom tasks run; None: as this process does. Raises UserImpossible."""
    own = os.geteuid()
    if not settings.run_as:
        if own == ROOT and not settings.root_allowed:
            raise UserImpossible(
                "tasks would run as root on this machine, which tasks.allow_root does not allow: name a user for them"
                " (tasks.run_as in scheduler.yaml), or allow it (tasks.allow_root: true)"
            )
        return None
    try:
        entry = pwd.getpwnam(settings.run_as)
    except KeyError:
        raise UserImpossible(f"tasks.run_as: there is no user {settings.run_as} on this machine") from None
    if entry.pw_uid == ROOT and not settings.root_allowed:
        raise UserImpossible("tasks.run_as: root, which tasks.allow_root does not allow (tasks.allow_root: true)")
    if entry.pw_uid == own:
        return None
    if own != ROOT:
        raise UserImpossible(
            f"tasks.run_as: only root may start processes as {settings.run_as}; on this machine tasks are started by"
            f" {_name_of(own)}"
        )
    groups = tuple(sorted(os.getgrouplist(entry.pw_name, entry.pw_gid)))
    return TaskUser(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, Path(entry.pw_dir))


def _name_of(user_id: int) -> str:
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return f"the user {user_id}"
