"""What is where below TOPMAST_HOME."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "TOPMAST_HOME"


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
    def host_log(self) -> Path:
        return self.home / "logs" / "host.log"


def default_home(environment: Mapping[str, str] = os.environ) -> Path:
    """TOPMAST_HOME, or ~/.topmast."""
    return Path(environment.get(HOME_VARIABLE) or "~/.topmast").expanduser().resolve()
