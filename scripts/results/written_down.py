"""Runs of a document that have ended, of a call that has not: what was interrupted goes on with `--resume`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from domain.events import JsonValue

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class WrittenDown(Generic[CaseT]):
    """A file of runs, one a line; several processes may write it."""

    path: Path
    run_case: Callable[[CaseT], dict[str, JsonValue]]
    """A function of a module, which measures a case. Cases differ in what they show of themselves (`repr`)."""

    def run(self, case: CaseT) -> dict[str, JsonValue]:
        """The run as it was written down, else run now and written down."""
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        for line in map(_object, lines):
            if line["case"] == repr(case):
                return dict(line["run"])
        measured = self.run_case(case)
        self.add(case, measured)
        return measured

    def add(self, case: CaseT, run: dict[str, JsonValue]) -> None:
        """Writes a run down."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            # One call: lines of two processes do not mix.
            file.write(json.dumps({"case": repr(case), "run": run}) + "\n")

    def forget(self) -> None:
        """Nothing is written down any more."""
        self.path.unlink(missing_ok=True)


def _object(line: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(line)
    return read
