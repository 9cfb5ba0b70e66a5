"""Where Topmast is: what was said, else the environment, else what `topmast up` wrote down, else the default port."""

from __future__ import annotations

import os
from pathlib import Path

DEFAULT_ADDRESS = "127.0.0.1:7460"
ADDRESS_VARIABLE = "TOPMAST_ADDRESS"
HOME_VARIABLE = "TOPMAST_HOME"


def topmast_home() -> Path:
    """The folder of a local Topmast: TOPMAST_HOME, or ~/.topmast."""
    return Path(os.environ.get(HOME_VARIABLE) or "~/.topmast").expanduser()


def resolve_address(address: str | None = None) -> str:
    """host:port of the global scheduler.

    The argument, or TOPMAST_ADDRESS, or the file `address` in the home folder, or 127.0.0.1:7460.
    """
    said = address or os.environ.get(ADDRESS_VARIABLE)
    if said:
        return said
    try:
        written = (topmast_home() / "address").read_text(encoding="utf-8").strip()
    except OSError:
        # Nothing was ever brought up from this home, or it belongs to another user.
        written = ""
    return written or DEFAULT_ADDRESS
