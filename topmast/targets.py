"""What gRPC connects to: one server, or those of several that say that they serve.

Of several global schedulers one leads, and its health says so; the others stand by. gRPC watches the health of all and
sends each call to those that serve, so a client follows the leader without asking who that is.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from topmast.errors import UnreachableError

SEPARATOR = ","


def addresses_of(address: str) -> tuple[str, ...]:
    """Each host:port of an address that may name several, with commas between, in its order."""
    return tuple(one.strip() for one in address.split(SEPARATOR))


def channel_target(address: str) -> str:
    """The target of a channel: of several addresses all IP addresses of their hosts.

    Names are looked up now, once; one that nobody knows is left out as long as another one is known. Raises
    UnreachableError where none is.
    """
    addresses = addresses_of(address)
    if len(addresses) == 1:
        return address
    found: dict[str, None] = {}
    for one in addresses:
        host, _, port = one.rpartition(":")
        for number in _looked_up(host.strip("[]"), port):
            found.setdefault(f"{number}:{port}")
    if not found:
        raise UnreachableError(f"no host of {address} is known")
    return _of_one_family(tuple(found))


def _looked_up(host: str, port: str) -> Sequence[str]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return ()
    return tuple(_numeric(str(answer[4][0])) for answer in answers)


def _numeric(number: str) -> str:
    return f"[{number}]" if ":" in number else number


def _of_one_family(endpoints: Sequence[str]) -> str:
    """gRPC takes lists of one family only: beside IPv6, IPv4 is written as a part of that."""
    if not any(endpoint.startswith("[") for endpoint in endpoints):
        return f"ipv4:{SEPARATOR.join(endpoints)}"
    return (
        f"ipv6:{SEPARATOR.join(endpoint if endpoint.startswith('[') else _mapped(endpoint) for endpoint in endpoints)}"
    )


def _mapped(endpoint: str) -> str:
    host, _, port = endpoint.rpartition(":")
    return f"[::ffff:{ipaddress.IPv4Address(host)}]:{port}"
