"""Runs one of our modules, wherever it is installed: `python -m topmast_server MODULE [ARGUMENT...]`, or by this file's path."""

from __future__ import annotations

import gc
import importlib
import runpy
import sys
from pathlib import Path

_DO_NOTHING_WHEN_IMPORTED = "services."
"""Modules with this before their names: they begin below `if __name__ == "__main__"`. Other scripts may not."""


def _run(arguments: list[str]) -> None:
    """`arguments` are of the module; the first is its name."""
    # Last: this only serves who runs us by our path, from sources that are not installed.
    sys.path.append(str(Path(__file__).resolve().parents[1]))
    import topmast_server  # noqa: F401 (from here on our packages are found)

    if arguments[0].startswith(_DO_NOTHING_WHEN_IMPORTED):
        _import_without_collections(arguments[0])
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


def _import_without_collections(module: str) -> None:
    """What it imports is there when it runs. While thousands of objects are made that all stay, searches for garbage among them take a
    quarter of the time until a tier has begun.
    """
    gc.disable()
    try:
        importlib.import_module(module)
    finally:
        gc.freeze()
        gc.enable()
    # It is run as `__main__`, and is no module besides.
    del sys.modules[module]


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit("say which module to run, such as services.runtime.kernels")
    _run(sys.argv[1:])
