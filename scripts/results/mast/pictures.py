"""The pictures of the document, as SVG: the same bytes for the same figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from scripts.results.mast.kept import KeptRun, find
from scripts.results.mast.measures import SHARES
from scripts.results.picture_style import panels, picture_style, save

if TYPE_CHECKING:
    pass

COLOURS: MappingProxyType[str, str] = MappingProxyType(
    {
        "mast": "#0072b2",
        "federated": "#d55e00",
        "random_region": "#999999",
        "own_region": "#009e73",
        "ideal": "#cc79a7",
    }
)
"""A palette that readers with fewer colours can distinguish too (Okabe and Ito's)."""
REGION_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555")
PRIORITIES = 7
PAPER_VIOLATIONS = 1.3
PAPER_ALLOCATION = 98.0


def draw_all(runs: Sequence[KeptRun], folder: Path) -> list[str]:
    """Draws what there are runs for; returns the names of the files."""
    loads = sorted({run.load for run in runs if run.experiment == "anywhere"})
    with picture_style():
        pictures = {
            "violations.svg": _violations(runs, loads),
            "regional-load.svg": _regional_load(runs),
            "start-latency.svg": _start_latency(runs, loads),
            "allocation.svg": _allocation(runs, loads),
        }
        for name, figure in pictures.items():
            save(figure, folder / name)
    return list(pictures)


def _violations(runs: Sequence[KeptRun], loads: Sequence[float]) -> Figure:
    figure, axes = panels(len(loads))
    for place, (axis, load) in enumerate(zip(axes, loads, strict=True)):
        shown = [run for run in runs if run.experiment == "anywhere" and run.load == load]
        width = 0.8 / max(1, len(shown))
        for number, run in enumerate(shown):
            rates = [run.of_priority(priority, "violation_rate") for priority in range(PRIORITIES)]
            at = [priority + (number - (len(shown) - 1) / 2) * width for priority in range(PRIORITIES)]
            heights = [100 * (rate or 0.0) for rate in rates]
            axis.bar(at, heights, width, color=COLOURS[run.policy], label=run.policy)
        axis.axhline(PAPER_VIOLATIONS, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(f"load {load:g}")
        axis.set_xlabel("priority of the tenant (0 is the highest)")
        axis.set_xticks(range(PRIORITIES))
        if place == 0:
            axis.set_ylabel("violations, % of the waits\nwithin quota (dotted: 1.3 %)")
        axis.legend(fontsize=7)
    return figure


def _regional_load(runs: Sequence[KeptRun]) -> Figure:
    shown = [run for policy in ("own_region", "mast") for run in find(runs, "anywhere", 1.0, policy)]
    figure, axes = panels(len(shown))
    for axis, run in zip(axes, shown, strict=True):
        for colour, (region, load) in zip(REGION_COLOURS, sorted(run.regional_load().items()), strict=False):
            days = [step * run.step_days for step in range(len(load))]
            axis.plot(days, [max(value, 0.01) for value in load], color=colour, linewidth=1.0, label=region)
        axis.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
        axis.set_yscale("log")
        axis.set_ylim(0.05, 40)
        axis.set_title(f"{run.policy}, load {run.load:g}")
        axis.set_xlabel("days")
    if axes:
        axes[0].set_ylabel("demand / supply of a region\n(mean of 12 h)")
        axes[-1].legend(fontsize=7, ncol=2, loc="upper right")
    return figure


def _start_latency(runs: Sequence[KeptRun], loads: Sequence[float]) -> Figure:
    figure, axes = panels(len(loads))
    for axis, load in zip(axes, loads, strict=True):
        for run in (run for run in runs if run.experiment == "anywhere" and run.load == load):
            axis.step(
                run.start_latencies(), [100 * share for share in SHARES], color=COLOURS[run.policy], label=run.policy
            )
        axis.set_xscale("log")
        axis.set_title(f"load {load:g}")
        axis.set_xlabel("start latency, s")
        axis.legend(fontsize=7, loc="lower right")
    axes[0].set_ylabel("% of the starts")
    return figure


def _allocation(runs: Sequence[KeptRun], loads: Sequence[float]) -> Figure:
    shown_loads = [load for load in loads if load >= 1.0]
    figure, axes = panels(max(1, len(shown_loads)))
    for axis, load in zip(axes, shown_loads, strict=False):
        shown = [run for run in runs if run.experiment == "anywhere" and run.load == load]
        for run in shown:
            rates = run.allocation_over_time("over_time")
            days = [step * run.step_days for step in range(len(rates))]
            axis.plot(days, [100 * rate for rate in rates], color=COLOURS[run.policy], linewidth=1.0, label=run.policy)
        axis.axhline(PAPER_ALLOCATION, color="black", linewidth=0.8, linestyle=":")
        axis.set_title(f"load {load:g}")
        axis.set_xlabel("days")
        axis.set_ylim(0, 105)
        axis.legend(fontsize=7, loc="lower right")
    axes[0].set_ylabel("GPUs allocated, % of all\n(mean of 12 h; dotted: 98 %)")
    return figure
