"""How a process of ours is started: with our code, from any working directory."""

from __future__ import annotations

import sys
from pathlib import Path

_RUN = Path(__file__).resolve().with_name("__main__.py")


def module_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules as `python -m` would, with these arguments.

    It runs the code of this process, wherever that is, and does not look into the working directory, where another
    `services` or `domain` may be.
    """
    return [sys.executable, "-P", str(_RUN), module, *arguments]
