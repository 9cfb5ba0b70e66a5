"""The pictures of the document, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scripts.results.picture_style import COLOURS, legend, panels, picture_style, save
from scripts.results.synergy.cases import (
    DERIVED_MULTI,
    DERIVED_SINGLE,
    MULTI_LOADS,
    PROPORTIONAL,
    SINGLE_LOADS,
    TUNE,
    Case,
)
from scripts.results.synergy.kept import KeptRun, find


def draw_all(runs: Sequence[KeptRun], folder: Path) -> None:
    """Completion time over load, first in first out and one GPU; least attained service and several."""
    shown = (
        ("single GPU, FIFO", Case(DERIVED_SINGLE, 0.0, TUNE, "fifo"), SINGLE_LOADS),
        ("several GPUs, LAS", Case(DERIVED_MULTI, 0.0, TUNE, "las"), MULTI_LOADS),
        ("several GPUs, SRTF", Case(DERIVED_MULTI, 0.0, TUNE, "srtf"), MULTI_LOADS),
    )
    with picture_style():
        figure, axes = panels(len(shown))
        for place, (title, case, loads) in enumerate(shown):
            for number, policy in enumerate((PROPORTIONAL, TUNE)):
                found = [(load, find(runs, replace(case, load=load, policy=policy))) for load in loads]
                points = [(load, run.jct_h) for load, run in found if run is not None]
                axes[place].plot(
                    [load for load, _ in points],
                    [jct_h for _, jct_h in points],
                    label=policy,
                    color=COLOURS[number],
                    marker="o",
                    markersize=3,
                )
            axes[place].set(title=title, xlabel="jobs an hour", ylabel="mean completion time (h)")
        legend(axes)
        save(figure, folder / "load.svg")
