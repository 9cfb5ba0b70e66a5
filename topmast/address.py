"""Where Topmast is: what was said, else the environment, else what `topmast up` wrote down, else the default port.

Never another home's by accident (docs/decisions/084-whose-service.md).
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from topmast.errors import UnreachableError
from topmast.messages import refused, shown
from topmast.targets import SEPARATOR, addresses_of

DEFAULT_ADDRESS = "127.0.0.1:7460"
ADDRESS_VARIABLE = "TOPMAST_ADDRESS"
HOME_VARIABLE = "TOPMAST_HOME"

_GREATEST_PORT = 65_535
_WANTED = "must read host:port, or several of them with commas between"
_NO_ADDRESS = re.compile(r"^$|[\s\x00-\x1f]")
"""Empty, which happens where a variable of a script is not set; or with blanks."""


def topmast_home() -> Path:
    """The folder of a local Topmast: TOPMAST_HOME, or ~/.topmast."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.topmast").expanduser()


def resolve_address(address: str | None = None) -> str:
    """host:port of the global scheduler; of several that take turns, each, with commas between.

    The argument, or TOPMAST_ADDRESS, or the file `address` in the home folder; and 127.0.0.1:7460, unless TOPMAST_HOME names
    a home. Raises InvalidArgumentError for an argument that is no address, and UnreachableError where the home that counts
    has no service: whoever listens at its address, or at the default one, would be another home's.
    """
    if address is not None and not _is_address(address):
        raise refused("address", f"{_WANTED}, not {shown(address)}")
    said = address or os.environ.get(ADDRESS_VARIABLE)
    if said:
        if not _is_address(said):
            raise refused(ADDRESS_VARIABLE, f"{_WANTED}, not {shown(said)}")
        return _plain(said)
    written = _written_address()
    if written and not (written.startswith("127.") and _host_has_gone()):
        return _plain(written)
    if written or os.environ.get(HOME_VARIABLE):
        raise UnreachableError(f"no Topmast is up from {topmast_home()}")
    return DEFAULT_ADDRESS


def is_said(address: str | None) -> bool:
    """Whether an address is named, so that the home does not count."""
    return bool(address or os.environ.get(ADDRESS_VARIABLE))


def is_guessed(address: str | None) -> bool:
    """Whether nothing says where Topmast is, so that the default address is all that is left."""
    return not (address or os.environ.get(ADDRESS_VARIABLE) or os.environ.get(HOME_VARIABLE) or _written_address())


def written_addresses() -> tuple[str, ...]:
    """Of the global schedulers of this home, as `topmast up` wrote them down; none: it is not up."""
    written = _written_address()
    return tuple(addresses_of(written)) if written else ()


def _written_address() -> str:
    try:
        return (topmast_home() / "address").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        # Nothing was ever brought up from this home, or it belongs to another user.
        return ""


def _host_has_gone() -> bool:
    """Whether the process that wrote the address was killed, and nobody starts it again: the locks of the host and of its
    watcher are there, and nobody holds them."""
    return _is_free("host.lock") and not _is_held("watcher.lock")


def _is_free(name: str) -> bool:
    """Whether there is such a lock, and nobody holds it."""
    try:
        with (topmast_home() / name).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # No lock was ever made, or it is held.
        return False
    return True


def _plain(said: str) -> str:
    return SEPARATOR.join(addresses_of(said))


def _is_held(name: str) -> bool:
    return (topmast_home() / name).exists() and not _is_free(name)


def _is_address(said: object) -> bool:
    return isinstance(said, str) and all(map(_is_one_address, addresses_of(said)))


def _is_one_address(said: str) -> bool:
    if not said.isascii() or _NO_ADDRESS.search(said):
        return False
    host, colon, port = said.rpartition(":")
    # gRPC would take 443 where no port is said, and the rest of a division for one that is too large.
    return bool(host and colon) and (not port.isdigit() or int(port) <= _GREATEST_PORT)
