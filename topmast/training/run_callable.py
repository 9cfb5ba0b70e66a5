"""Runs `module:function`, without arguments, as a task: python -m topmast.training.run_callable module:function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from operator import attrgetter


def main(arguments: Sequence[str]) -> int:
    """0 when the function returned; 2 when there is no such function. What it raises ends the process."""
    if len(arguments) != 1 or ":" not in arguments[0]:
        return _refuse("say what to run as module:function")
    module_name, _, path = arguments[0].partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        return _refuse(f"there is no module {error.name!r} here; is the working directory the right one?")
    try:
        function: object = attrgetter(path)(module)
    except AttributeError:
        return _refuse(f"module {module_name!r} has no {path!r}")
    if not callable(function):
        return _refuse(f"{arguments[0]!r} cannot be called")
    function()
    return 0


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"topmast: {sentence}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
