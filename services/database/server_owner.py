"""Which user the embedded PostgreSQL runs as: ourselves, or, because it refuses to run as root, another one."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

_log = structlog.get_logger(__name__)

_PREFERRED_USERS = ("postgres", "pgserver")
_FALLBACK_USER = "nobody"


class ServerOwnerFailed(Exception):
    """PostgreSQL cannot be given a user to run as, or that user cannot reach what it needs."""


@dataclass(frozen=True, slots=True)
class ServerOwner:
    """The user that owns the data and runs the server."""

    name: str
    user_id: int
    group_id: int

    @property
    def is_ourselves(self) -> bool:
        return self.user_id == os.geteuid()


def choose_owner(data: Path) -> ServerOwner:
    """The user to run the server on the folder `data` as.

    Ourselves, unless we are root: then the owner of the data, else the first of `postgres` and `pgserver`
    that exists, else a new system user `pgserver`, else `nobody`.
    """
    if os.geteuid() != 0:
        return _owner_of_id(os.geteuid(), os.getegid())
    if data.exists() and (found := data.stat()).st_uid != 0:
        return _owner_of_id(found.st_uid, found.st_gid)
    for name in _PREFERRED_USERS:
        if (entry := _find_user(name)) is not None:
            return _owner(entry)
    entry = _create_system_user(_PREFERRED_USERS[-1]) or _find_user(_FALLBACK_USER)
    if entry is None:
        raise ServerOwnerFailed(
            "PostgreSQL does not run as root, and this system has no other user for it: create a user named "
            f"{_PREFERRED_USERS[-1]!r}, start Topmast as another user, or set TOPMAST_DATABASE_URL"
        )
    return _owner(entry)


def _owner_of_id(user_id: int, group_id: int) -> ServerOwner:
    """A container may run under a number without a name: the server can, only initdb asks for the name."""
    try:
        return _owner(pwd.getpwuid(user_id))
    except KeyError:
        return ServerOwner(str(user_id), user_id, group_id)


def _owner(entry: pwd.struct_passwd) -> ServerOwner:
    return ServerOwner(entry.pw_name, entry.pw_uid, entry.pw_gid)


def _find_user(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _create_system_user(name: str) -> pwd.struct_passwd | None:
    """The new user, or None where users cannot be created (no useradd, read-only /etc)."""
    program = shutil.which("useradd")
    if program is None:
        return None
    try:
        subprocess.run(
            [program, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        _log.info("no system user could be created for PostgreSQL", user=name, error=str(error))
    return _find_user(name)


def run_as(owner: ServerOwner, command: Sequence[str | Path], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command as the owner and returns what it printed; it sees nothing of our environment but PATH."""
    identity_of_owner = identity(owner)
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        check=False,
        capture_output=True,
        text=True,
        env=server_environment(),
        user=identity_of_owner.user,
        group=identity_of_owner.group,
        extra_groups=identity_of_owner.extra_groups,
    )


@dataclass(frozen=True, slots=True)
class Identity:
    """The user and groups that `subprocess` starts a process with; None: our own."""

    user: int | None
    group: int | None
    extra_groups: tuple[int, ...] | None


def identity(owner: ServerOwner) -> Identity:
    """The owner as `subprocess` wants it: in no other groups, when it is not ourselves."""
    if owner.is_ourselves:
        return Identity(None, None, None)
    return Identity(owner.user_id, owner.group_id, ())


def server_environment() -> dict[str, str]:
    """What the server's processes see: PG* variables of the user's shell must not lead them elsewhere."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def make_private_folder(folder: Path, owner: ServerOwner) -> None:
    """Creates a folder that belongs to the owner alone, in a folder that exists."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {os.geteuid(), owner.user_id}:
        raise ServerOwnerFailed(f"{folder} belongs to someone else: remove it, or set TOPMAST_HOME to another folder")
    if not owner.is_ourselves:
        os.chown(folder, owner.user_id, owner.group_id)
    folder.chmod(0o700)


def let_through(folder: Path, owner: ServerOwner) -> None:
    """Lets the owner pass through (not list) every folder above and including `folder`, which must exist.

    Only folders that would stop it are changed, and each change is logged.
    """
    if owner.is_ourselves:
        return
    for ancestor in reversed([folder, *folder.parents]):
        mode = ancestor.stat()
        if mode.st_uid == owner.user_id or mode.st_mode & stat.S_IXOTH:
            continue
        if mode.st_gid == owner.group_id and mode.st_mode & stat.S_IXGRP:
            continue
        _log.warning("letting others pass through a folder, for PostgreSQL", folder=str(ancestor), user=owner.name)
        try:
            ancestor.chmod(stat.S_IMODE(mode.st_mode) | stat.S_IXOTH)
        except OSError as error:
            raise ServerOwnerFailed(
                f"user {owner.name}, as which PostgreSQL runs, cannot pass through {ancestor} ({error}): "
                "set TOPMAST_HOME to a folder that others may pass through"
            ) from error


def make_readable(folder: Path, owner: ServerOwner) -> None:
    """Lets the owner read and run everything below `folder`: programs that were installed for root only."""
    if owner.is_ourselves:
        return
    let_through(folder, owner)
    for path in (folder, *sorted(folder.rglob("*"))):
        mode = path.lstat().st_mode
        wanted = mode | stat.S_IROTH | (stat.S_IXOTH if mode & stat.S_IXUSR else 0)
        if not stat.S_ISLNK(mode) and wanted != mode:
            path.chmod(stat.S_IMODE(wanted))
