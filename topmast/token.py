"""With which token Topmast is called: what was said, else the environment, else what `topmast up` wrote for its user.

A token is secret: it is only sent to the service that it is for. The one of a home goes to the addresses of that home alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from topmast.address import topmast_home, written_addresses
from topmast.messages import refused
from topmast.targets import addresses_of

TOKEN_VARIABLE = "TOPMAST_TOKEN"  # noqa: S105 -- the name of a variable
TOKEN_FILE_VARIABLE = "TOPMAST_TOKEN_FILE"  # noqa: S105 -- the name of a variable

TokenSource = Callable[[], str | None]
"""The token at this moment; None: calls go without one."""

_LONGEST_TOKEN = 16_384


def resolve_token(token: str | None, address: str) -> TokenSource:
    """The argument, or TOPMAST_TOKEN, or the file that TOPMAST_TOKEN_FILE names, or secrets/admin.token in the home whose address
    this is. Files are read at each call, so that a token can be replaced.

    Raises InvalidArgumentError for what can be no token, and for a file that cannot be read.
    """
    if token is not None:
        return _fixed("token", token)
    said = os.environ.get(TOKEN_VARIABLE)
    if said:
        return _fixed(TOKEN_VARIABLE, said)
    named = os.environ.get(TOKEN_FILE_VARIABLE)
    if named:
        file = Path(named).expanduser()
        if _read(file) is None:
            raise refused(TOKEN_FILE_VARIABLE, f"names {named}, which is no file with a token that can be read")
        return lambda: _read(file)
    if set(addresses_of(address)) <= set(written_addresses()):
        home_file = topmast_home() / "secrets" / "admin.token"
        return lambda: _read(home_file)
    return _none


def _none() -> None:
    return None


def _fixed(name: str, token: object) -> TokenSource:
    # It is not shown: it may be a token with a slip.
    if not isinstance(token, str) or not _is_sendable(token.strip()):
        raise refused(name, "must be a token as it was shown when it was made: printable letters without blanks")
    text = token.strip()
    return lambda: text


def _read(file: Path) -> str | None:
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        # There is none, or it is another user's.
        return None
    return text if _is_sendable(text) else None


def _is_sendable(text: str) -> bool:
    return 0 < len(text) <= _LONGEST_TOKEN and text.isascii() and text.isprintable() and " " not in text
