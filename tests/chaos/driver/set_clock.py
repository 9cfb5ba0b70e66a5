"""The clock of a service's processes, which can be set without touching that of the machine."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).with_name("clock")
CLOCK_VARIABLE = "TOPMAST_CHAOS_CLOCK"


@dataclass(frozen=True, slots=True)
class SetClock:
    """To be made before the service is started: its processes inherit where to look."""

    file: Path

    def begin(self) -> None:
        """Has all processes that are started from now on, by this one or those, show the file's clock."""
        self.file.write_bytes(struct.pack("d", 0.0))
        former = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (str(_FOLDER), former) if part)
        os.environ[CLOCK_VARIABLE] = str(self.file)

    def jump(self, by_s: float) -> None:
        """All of them show by so much more from now on."""
        (ahead_s,) = struct.unpack("d", self.file.read_bytes())
        with self.file.open("r+b") as file:
            file.write(struct.pack("d", ahead_s + by_s))
