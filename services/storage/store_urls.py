"""Where the files of attempts are stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoreUrls:
    """URLs of fsspec. Empty: checkpoints, or logs, stay where the tasks write them."""

    packages: str
    checkpoints: str = ""
    logs: str = ""
