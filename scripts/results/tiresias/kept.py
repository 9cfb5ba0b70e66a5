"""The measures of the runs as figures.json keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from domain.events import JsonValue


@dataclass(frozen=True, slots=True)
class KeptRun:
    """One run."""

    kept: Mapping[str, JsonValue]

    @property
    def trace(self) -> str:
        return str(self.kept["trace"])

    @property
    def variant(self) -> str:
        return str(self.kept["variant"])

    @property
    def load(self) -> float:
        return self.number("load")

    @property
    def quantiles_s(self) -> list[float]:
        """Of completion times, evenly spaced from the least to the greatest."""
        return cast(list[float], self.kept["jct_quantiles_s"])

    def number(self, name: str) -> float:
        return float(cast(float, self.kept[name]))

    def jct_s(self, name: str) -> float:
        """`mean`, `p50`, `p95`, ..."""
        return float(cast(Mapping[str, float], self.kept["jct_s"])[name])


def find(runs: Sequence[KeptRun], trace: str, load: float, variant: str) -> KeptRun | None:
    """The run; None where there is none."""
    for run in runs:
        if (run.trace, run.load, run.variant) == (trace, load, variant):
            return run
    return None
