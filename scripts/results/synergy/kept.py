"""The measures of the runs as figures.json keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from domain.events import JsonValue
from scripts.results.synergy.cases import Case


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One run."""

    kept: Mapping[str, JsonValue]

    def number(self, name: str) -> float:
        return float(cast(float, self.kept[name]))

    @property
    def jct_h(self) -> float:
        """Mean completion time of the jobs that count."""
        return self.number("jct_s") / 3600

    @property
    def early_jct_h(self) -> float:
        """The same of those before them that are compared with the authors' simulator."""
        return self.number("early_jct_s") / 3600


def find(runs: Sequence[KeptRun], case: Case) -> KeptRun | None:
    """The run; None where there is none."""
    wanted = asdict(case)
    return next((run for run in runs if all(run.kept[name] == value for name, value in wanted.items())), None)


def ratio(runs: Sequence[KeptRun], case: Case, other: Case) -> float | None:
    """How many times as long jobs take in the first; None where either was not run."""
    one, two = find(runs, case), find(runs, other)
    return None if one is None or two is None or two.jct_h <= 0 else one.jct_h / two.jct_h


def early_ratio(runs: Sequence[KeptRun], case: Case, other: Case) -> float | None:
    """The same of the early jobs."""
    one, two = find(runs, case), find(runs, other)
    return None if one is None or two is None or two.early_jct_h <= 0 else one.early_jct_h / two.early_jct_h
