"""The pictures of the document, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scripts.results.picture_style import COLOURS, legend, panels, picture_style, save
from scripts.results.tiresias.cases import MIDDLE_LOAD, POLICIES, TRACES
from scripts.results.tiresias.kept import KeptRun, find


def draw_all(runs: Sequence[KeptRun], folder: Path) -> None:
    """Completion times at the middle load, and what promotion and thresholds change."""
    traces = [trace for trace in TRACES if find(runs, trace, MIDDLE_LOAD, POLICIES[0]) is not None]
    with picture_style():
        figure, axes = panels(max(1, len(traces)))
        for place, trace in enumerate(traces):
            for number, policy in enumerate(POLICIES):
                run = find(runs, trace, MIDDLE_LOAD, policy)
                if run is None:
                    continue
                quantiles = np.maximum(np.array(run.quantiles_s), 1.0)
                shares = np.linspace(0, 1, len(quantiles))
                axes[place].plot(quantiles, shares, label=policy, color=COLOURS[number], linewidth=1.3)
            axes[place].set(xscale="log", title=TRACES[trace].title, xlabel="completion time (s)", ylabel="workloads")
        legend(axes)
        save(figure, folder / "completion-times.svg")
