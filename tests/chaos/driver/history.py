"""What clients did, and what they heard: a line when a call begins, another when its outcome is known.

A client that is killed leaves calls without an outcome; they may have had an effect or not, now or later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

NEVER_S = float("inf")


class Kind(StrEnum):
    SUBMIT = "submit"
    GET = "get"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Operation:
    """One call. Times are of the machine's steady clock, which all processes share."""

    number: str
    """Of the call, unique in the history."""
    key: str
    """Of the workload that it is about."""
    kind: Kind
    called_s: float
    returned_s: float = NEVER_S
    """NEVER_S: nobody knows what became of it."""
    workload: str = ""
    """A submission's answer."""
    existed: bool = False
    """A submission's answer."""
    found: bool = True
    """Whether there was such a workload."""
    state: str = ""
    """What a look, or a cancellation, showed."""
    refused: bool = False
    """A cancellation that came too late: the workload had ended."""
    attempts: int = 0
    """So many a look showed."""

    @property
    def is_known(self) -> bool:
        return self.returned_s != NEVER_S


class HistoryWriter:
    """Each line is in the file when the call returns, whatever happens to this process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, **line: Any) -> None:
        os.write(self._descriptor, (json.dumps(line) + "\n").encode())


def read_history(path: Path) -> list[Operation]:
    """All calls, in the order in which they began."""
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
    return operations_of(lines)


def operations_of(lines: Iterable[dict[str, Any]]) -> list[Operation]:
    begun: dict[str, dict[str, Any]] = {}
    for line in lines:
        begun.setdefault(line["number"], {}).update(line)
    made = [Operation(**{**one, "kind": Kind(one["kind"])}) for one in begun.values()]
    return sorted(made, key=lambda one: (one.called_s, one.number))
