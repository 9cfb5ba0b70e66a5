"""What a page of figures is made of: panels, each with pictures to choose from and the tables behind them.

A picture is what Plotly draws: traces and a layout, as JSON. Colours are not written out but named (`@series-0`,
`@muted`, `@bad`): the page has them twice, light and dark, and puts them in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from domain.events import JsonValue
from simulator.results.run_record import Reals, RunRecord

SERIES = 8
"""Colours that can be distinguished; further series begin anew."""
OTHERS = "others"


@dataclass(frozen=True, slots=True)
class FigureTable:
    """Rows of text under a head; the first column is a name, the others are numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """Traces and layout for Plotly. `label` distinguishes it from the panel's other ones."""

    label: str
    traces: tuple[Mapping[str, JsonValue], ...]
    layout: Mapping[str, JsonValue]

    def as_json(self) -> dict[str, JsonValue]:
        return {"label": self.label, "traces": [dict(trace) for trace in self.traces], "layout": dict(self.layout)}


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure with its name, what it shows, its pictures and its tables. Without pictures it is a sentence."""

    name: str
    """In links: lower case and dashes."""
    title: str
    explanation: str
    pictures: tuple[Picture, ...]
    tables: tuple[FigureTable, ...]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class LabelledRun:
    """A run, and what it is called on the page."""

    label: str
    record: RunRecord


def colour(series: int) -> str:
    """The name of a series' colour."""
    return f"@series-{series % SERIES}"


def numbers(values: Reals | Sequence[float], digits: int = 4) -> list[JsonValue]:
    """For JSON, rounded to so many digits; null for what is not a number."""
    return [None if not np.isfinite(value) else _rounded(float(value), digits) for value in values]


def _rounded(value: float, digits: int) -> float | int:
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded


def texts(values: Sequence[str]) -> list[JsonValue]:
    return list[JsonValue](values)
