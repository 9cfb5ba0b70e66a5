"""The pictures of the document, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from scripts.results.hived.cases import DECLARED, HIVED, MULTI_LEVEL, PRIVATE, QUOTA, SCHEDULERS, SIZES
from scripts.results.hived.kept import KeptRun, find
from scripts.results.picture_style import COLOURS, legend, panels, picture_style, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ARMS = (PRIVATE, QUOTA, HIVED)
HOURS_PER_WINDOW = 12


def draw_all(runs: Sequence[KeptRun], folder: Path) -> None:
    """Queueing by tenant, queueing over time of the tenant that shares most badly, fragmentation over time."""
    with picture_style():
        figure, axes = panels(len(SIZES), 3.6)
        for place, size in enumerate(SIZES):
            _by_tenant(axes[place], runs, size)
        legend(axes)
        save(figure, folder / "queueing.svg")
        figure, axes = panels(len(SIZES))
        for place, size in enumerate(SIZES):
            _over_time(axes[place], runs, size)
        legend(axes)
        save(figure, folder / "queueing-over-time.svg")
        figure, axes = panels(len(SIZES))
        for place, size in enumerate(SIZES):
            _fragmentation(axes[place], runs, size)
        legend(axes)
        save(figure, folder / "fragmentation.svg")


def worst_tenant(runs: Sequence[KeptRun], size: str) -> str | None:
    """The tenant that waits longest under quotas compared with its private cluster, first in, first out."""
    quota, private = (find(runs, size, SCHEDULERS[0], arm) for arm in (QUOTA, PRIVATE))
    if quota is None or private is None:
        return None
    excess = {name: (quota.queueing_s(name) or 0.0) - (private.queueing_s(name) or 0.0) for name in private.tenants}
    return max(sorted(excess), key=excess.__getitem__)


def _by_tenant(axes: Axes, runs: Sequence[KeptRun], size: str) -> None:
    found = [find(runs, size, SCHEDULERS[0], arm) for arm in ARMS]
    tenants = next((run.tenants for run in found if run is not None), [])
    for number, (arm, run) in enumerate(zip(ARMS, found, strict=True)):
        if run is not None:
            hours = [max((run.queueing_s(tenant) or 0.0) / 3600, 0.01) for tenant in tenants]
            axes.bar(np.arange(len(tenants)) + 0.27 * (number - 1), hours, 0.27, label=arm, color=COLOURS[number])
    axes.set(yscale="log", title=f"{size}: {SIZES[size]:,} GPUs", ylabel="mean queueing (h)")
    axes.set_xticks(np.arange(len(tenants)), tenants, rotation=60, fontsize=7)


def _over_time(axes: Axes, runs: Sequence[KeptRun], size: str) -> None:
    tenant = worst_tenant(runs, size)
    if tenant is None:
        return
    for number, arm in enumerate(ARMS):
        run = find(runs, size, SCHEDULERS[0], arm)
        if run is not None:
            hours = [np.nan if wait_s is None else wait_s / 3600 for wait_s in run.waits(tenant)]
            days = (np.arange(len(hours)) + 0.5) * HOURS_PER_WINDOW / 24
            axes.plot(days, hours, label=arm, color=COLOURS[number], marker="o", markersize=3, linewidth=1.2)
    axes.set(title=f"{size}: tenant {tenant}", xlabel="day of submission", ylabel="mean queueing (h)")


def _fragmentation(axes: Axes, runs: Sequence[KeptRun], size: str) -> None:
    for number, (arm, label) in enumerate(((DECLARED, "machines only"), (MULTI_LEVEL, "cells of four levels"))):
        run = find(runs, size, SCHEDULERS[0], arm)
        if run is not None:
            used = np.array(run.fragmentation("used")) * 100
            axes.plot((np.arange(len(used)) + 1) / 24, used, label=label, color=COLOURS[number], linewidth=1.2)
    axes.set(
        title=f"{size}: {SIZES[size]:,} GPUs", xlabel="day", ylabel="machines with guaranteed work (%)", ylim=(0, 100)
    )
