"""topmast version."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from services.command_line.options import JsonOption
from services.command_line.output import show_json, show_line


def version(as_json: JsonOption = False) -> None:
    """Show the version of this program."""
    try:
        here = version_of("topmast")
    except PackageNotFoundError:
        # Run from its source, without being installed.
        here = "not installed"
    if as_json:
        show_json({"topmast": here, "python": platform.python_version()})
    else:
        show_line(f"topmast {here} (Python {platform.python_version()})")
