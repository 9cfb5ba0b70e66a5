"""Ports that are settled before they are listened at."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import SystemRandom

from services.tiers.port_holder import port_holder

_PORTS = range(20_000, 32_768)
"""Below those that Linux hands out by itself (32768 and up) and above those of Ray's workers (10002 to 19999)."""

_HANDED_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""First and last port that this machine hands out to connections, and to whoever asks for any port."""


def free_port(host: str) -> int:
    """A port that is free now, and that is likely to stay so: a process that asks for any port does not get it.

    A machine that hands out all of them has no such port; there it is any that is free (see `kept_ports`). Raises OSError when there is none, or the host is not ours.
    """
    handed_out = _handed_out()
    ports = [port for port in _PORTS if port not in handed_out] or _PORTS
    for port in SystemRandom().sample(ports, len(ports)):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    raise OSError(errno.EADDRINUSE, f"no port of {host} between {_PORTS.start} and {_PORTS.stop - 1} is free")


def _handed_out() -> range:
    """Where nothing says which, those are none of ours."""
    try:
        first, last = map(int, _HANDED_OUT.read_text(encoding="ascii").split())
    except FileNotFoundError:
        return range(0)
    return range(first, last + 1)


class PortNotAvailable(Exception):
    """Nothing can listen there; the message says why, and what to do."""


def require_port(host: str, port: int, *, option: str = "--port") -> None:
    """Raises PortNotAvailable unless a server could listen at this port of the host at this moment.

    `option`: what names the port.
    """
    with _port_of_ours(host, port, option) as probe:
        try:
            probe.listen()
        except OSError as error:
            raise PortNotAvailable(_why_not(host, port, option, error)) from error


@contextmanager
def kept_ports(host: str, ports: Sequence[int], *, option: str = "--port") -> Iterator[None]:
    """A server of ours may listen at one of these ports, end, and listen again: no connection of another process gets it meanwhile.

    Where the port is one of those that Linux hands out, a connection would take it in the moment in which nothing listens.
    Raises PortNotAvailable as `require_port` does.
    """
    with ExitStack() as kept:
        for port in ports:
            require_port(host, port, option=option)
            kept.enter_context(_port_of_ours(host, port, option))
        yield


@contextmanager
def _port_of_ours(host: str, port: int, option: str) -> Iterator[socket.socket]:
    """A socket that has the port and does not listen, so that others that say the same may listen there.

    Raises PortNotAvailable.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        holder = socket.socket(family, kind, protocol)
    except OSError as error:
        raise PortNotAvailable(_why_not(host, port, option, error)) from error
    with holder:
        # As servers do: connections that were closed a moment ago keep nobody from listening.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind(address)
        except OSError as error:
            raise PortNotAvailable(_why_not(host, port, option, error)) from error
        yield holder


def _why_not(host: str, port: int, option: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        holder = port_holder(port)
        taken = f"taken by {holder}" if holder else "taken"
        return f"port {port} of {host} is {taken}; name a free one with {option}, or {option} 0 for any"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} is reserved for the administrator; name one above 1023 with {option}"
    return f"cannot listen at {host}: {error.strerror}; name an address of this machine with --listen-host"
