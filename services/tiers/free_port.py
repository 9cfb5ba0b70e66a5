"""Ports that are settled before they are listened at."""

from __future__ import annotations

import errno
import socket
from random import SystemRandom

_PORTS = range(20_000, 32_768)
"""Below those that Linux hands out (32768 and up) and above those of Ray's workers (10002 to 19999)."""


def free_port(host: str) -> int:
    """A port that is free now, and that is likely to stay so: a process that asks for any port does not get it.

    Raises OSError when there is none, or the host is not ours.
    """
    for port in SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    raise OSError(errno.EADDRINUSE, f"no port of {host} between {_PORTS.start} and {_PORTS.stop - 1} is free")
