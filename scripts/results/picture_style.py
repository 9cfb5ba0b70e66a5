"""What the pictures of all documents have in common: the same bytes for the same figures, colours that all can tell apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000")
"""A palette that readers with fewer colours can distinguish too (Okabe and Ito's)."""


@contextmanager
def picture_style() -> Iterator[None]:
    """Within it figures are drawn."""
    with mpl.rc_context(
        {
            "svg.hashsalt": "topmast",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.25,
            "legend.frameon": False,
            "figure.facecolor": "white",
            "path.simplify": True,
        }
    ):
        yield


def panels(count: int, height: float = 3.2) -> tuple[Figure, list[Axes]]:
    """A figure with so many axes side by side, of one scale upwards."""
    figure = Figure(figsize=(10.0, height), layout="constrained")
    axes = figure.subplots(1, count, sharey=True, squeeze=False)
    return figure, list(axes[0])


def legend(axes: Sequence[Axes]) -> None:
    """In the first panel that shows anything."""
    shown = next((one for one in axes if one.get_legend_handles_labels()[0]), None)
    if shown is not None:
        shown.legend(fontsize=8)


def save(figure: Figure, path: Path) -> None:
    """As SVG, without the date."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
