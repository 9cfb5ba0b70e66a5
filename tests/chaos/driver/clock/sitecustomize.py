"""Python imports this first, where its folder is on the path: `time.time` shows what a file says it is ahead.

So the clocks of all of a service's own processes are set at one moment, and no other clock of the machine.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time

_FILE_VARIABLE = "TOPMAST_CHAOS_CLOCK"


def _set_clock(path: str) -> None:
    with open(path, "rb") as file:  # noqa: PTH123 - nothing else is imported before everybody else
        ahead_s = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    real = time.time
    read = struct.Struct("d").unpack_from

    def shown() -> float:
        # gRPC makes deadlines of it, which its core compares with the clock of the machine.
        if sys._getframe(1).f_globals.get("__name__", "").startswith("grpc"):
            return real()
        return real() + float(read(ahead_s)[0])

    time.time = shown


if os.path.exists(os.environ.get(_FILE_VARIABLE, "")):  # noqa: PTH110 - as above
    _set_clock(os.environ[_FILE_VARIABLE])
