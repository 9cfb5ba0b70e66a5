"""Ports that are settled before they are listened at."""

from __future__ import annotations

import errno
import socket
from random import SystemRandom

from services.tiers.port_holder import port_holder

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


class PortNotAvailable(Exception):
    """Nothing can listen there; the message says why, and what to do."""


def require_port(host: str, port: int, *, option: str = "--port") -> None:
    """Raises PortNotAvailable unless a server could listen at this port of the host at this moment.

    `option`: what names the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # As servers do: connections that were closed a moment ago keep nobody from listening.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        raise PortNotAvailable(_why_not(host, port, option, error)) from error


def _why_not(host: str, port: int, option: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port)
        taken = f"taken by {holder}" if holder else "taken"
        return f"port {port} of {host} is {taken}; name a free one with {option}, or {option} 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is reserved for the administrator; name one above 1023 with {option}"
    return f"cannot listen at {host}: {error.strerror}; name an address of this machine with --listen-host"
