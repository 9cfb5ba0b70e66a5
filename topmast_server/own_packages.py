"""Where the packages of the service are, and that this process finds them, whatever else is called like them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Final

OWN_PACKAGES: Final = (
    "cluster_manager",
    "data_placement",
    "domain",
    "formats",
    "global_scheduler",
    "kernels",
    "regional_scheduler",
    "services",
    "simulator",
)
"""Installed below `topmast_server`; in the repository they stand beside it."""


def code_folder() -> Path:
    """The folder that holds the packages: ours when it is installed, in a checkout the one above."""
    ours = Path(__file__).resolve().parent
    return ours if (ours / "services").is_dir() else ours.parent


class _OwnPackageFinder(MetaPathFinder):
    """Knows the packages of the service by their short names and where they are, and the client that belongs to them."""

    def __init__(self, folder: Path, beside: Path) -> None:
        self._folder_of = dict.fromkeys(OWN_PACKAGES, folder) | dict.fromkeys(("topmast", "topmast_server"), beside)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The package of that name; None for all others, and for what is within packages: those say where it is."""
        folder = self._folder_of.get(fullname)
        return None if folder is None else PathFinder.find_spec(fullname, [str(folder)], target)


def find_own_packages() -> None:
    """Has this process find our packages before any of the same name, wherever it runs and whatever is on its path."""
    if not any(isinstance(finder, _OwnPackageFinder) for finder in sys.meta_path):
        # Before the search path: Ray, for one, puts the folder where the service was started at its head.
        sys.meta_path.insert(0, _OwnPackageFinder(code_folder(), Path(__file__).resolve().parents[1]))
