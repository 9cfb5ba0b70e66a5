"""What is where below TOPMAST_HOME."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "TOPMAST_HOME"

_LONGEST_RAY_FOLDER_BYTES = 34
"""A socket's path has at most 103 bytes (107 on Linux), and below that folder Ray's take 69."""


@dataclass(frozen=True, slots=True)
class HomeLayout:
    """The files of a service that runs on this machine."""

    home: Path

    @property
    def address(self) -> Path:
        """`host:port` of the global scheduler: clients look here."""
        return self.home / "address"

    @property
    def host_record(self) -> Path:
        """What the host process says of itself, as JSON."""
        return self.home / "host.json"

    @property
    def host_lock(self) -> Path:
        """Locked by the host process as long as it lives."""
        return self.home / "host.lock"

    @property
    def watcher_lock(self) -> Path:
        """Locked by the watcher of the host as long as it lives."""
        return self.home / "watcher.lock"

    @property
    def watcher_record(self) -> Path:
        """How many hosts the watcher has lost, and since when there is none, as JSON."""
        return self.home / "watcher.json"

    @property
    def database_lock(self) -> Path:
        """Locked by the supervisor of the embedded database as long as it lives (`services.database.embedded`)."""
        return self.home / "postgres" / "supervisor.lock"

    @property
    def host_log(self) -> Path:
        return self.home / "logs" / "host.log"

    @property
    def simulations(self) -> Path:
        """Runs of simulations that need not be made again."""
        return self.home / "cache" / "simulations"

    @property
    def ray_sessions(self) -> Path:
        """Where the Ray of this home has a folder for each of its runs. It opens it to everybody: what it is in is closed."""
        return self.ray_folder / "s"

    @property
    def ray_folder(self) -> Path:
        """What that is in; in /tmp, under a name made from the home, where that would make the paths of Ray's sockets too long."""
        beside = self.home / "ray"
        if len(os.fsencode(beside)) <= _LONGEST_RAY_FOLDER_BYTES:
            return beside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:16]
        return Path("/tmp") / f"topmast-ray-{digest}"  # noqa: S108 - made for us alone


def default_home(environment: Mapping[str, str] = os.environ) -> Path:
    """TOPMAST_HOME, or ~/.topmast."""
    return Path(environment.get(HOME_VARIABLE) or "~/.topmast").expanduser().resolve()
