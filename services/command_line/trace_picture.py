"""A picture of a trace in a file: load over time, sizes, lengths and tenants.

As SVG or PNG it is drawn by matplotlib, which needs no browser for that; as HTML by plotly, which puts all it needs
into the page. The same figures stand behind both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from formats.trace import TraceRow
    from simulator.inputs.summary import TraceSummary

SUFFIXES = (".svg", ".png", ".html")
DAY_S = 86_400.0
_TENANTS = 12
_POINTS = 400
_BLUE, _ORANGE, _GREEN = "#3b6fb6", "#d9822b", "#4a9d6f"


@dataclass(frozen=True, slots=True)
class _Panels:
    """What both kinds of picture show."""

    days: Sequence[float]
    wanted_gpus: Sequence[float]
    submitted_gpus: Sequence[float]
    sizes: Sequence[str]
    workloads: Sequence[float]
    gpu_hours: Sequence[float]
    duration_s: Sequence[float]
    share: Sequence[float]
    tenants: Sequence[str]
    tenant_gpu_hours: Sequence[float]


LOAD = "GPUs over time (days of the trace's clock)"
SIZES = "Workloads and GPU-hours by number of GPUs (per cent)"
DURATIONS = "Durations: share of the workloads that are shorter"
TENANTS = "GPU-hours of the largest tenants"
WANTED = "wanted, if all ran at once"
SUBMITTED = "submitted, GPU-hours per hour"


def picture_path(path: Path | None) -> Path | None:
    """Refuses a name that says no format that can be drawn."""
    if path is not None and path.suffix not in SUFFIXES:
        raise typer.BadParameter(f"must end in {', '.join(SUFFIXES)}")
    return path


def write_picture(path: Path, title: str, rows: Sequence[TraceRow], summary: TraceSummary) -> None:
    """Draws into a new file, whole or not at all; the same trace gives the same bytes as SVG."""
    from formats.atomic_file import atomic_file

    panels = _panels(rows, summary)
    with atomic_file(path) as written:
        if path.suffix == ".html":
            _write_page(written, title, panels)
        else:
            _write_drawing(written, title, panels)


def _panels(rows: Sequence[TraceRow], summary: TraceSummary) -> _Panels:
    duration_s = sorted(row.duration_s for row in rows)
    last = len(duration_s) - 1
    places = [last * point // min(_POINTS, last or 1) for point in range(min(_POINTS, last or 1) + 1)]
    total = summary.gpu_hours or 1.0
    return _Panels(
        days=[seconds / DAY_S for seconds in summary.load.from_s],
        wanted_gpus=summary.load.wanted_gpus,
        submitted_gpus=summary.load.submitted_gpus,
        sizes=[group.name for group in summary.by_gpus],
        workloads=[round(100 * group.workloads / summary.workloads, 3) for group in summary.by_gpus],
        gpu_hours=[round(100 * group.gpu_hours / total, 3) for group in summary.by_gpus],
        duration_s=[duration_s[place] for place in places],
        share=[(place + 1) / len(duration_s) for place in places],
        tenants=[group.name for group in summary.by_tenant[:_TENANTS]],
        tenant_gpu_hours=[group.gpu_hours for group in summary.by_tenant[:_TENANTS]],
    )


def _write_drawing(path: Path, title: str, panels: _Panels) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # Names of parts of the drawing, and its date, would otherwise differ from run to run.
    with mpl.rc_context({"svg.hashsalt": "topmast", "svg.fonttype": "none", "font.size": 9.0}):
        figure = Figure(figsize=(12.0, 7.5), layout="constrained")
        FigureCanvasAgg(figure)
        figure.suptitle(title)
        (load, sizes), (durations, tenants) = figure.subplots(2, 2)
        load.step(panels.days, panels.wanted_gpus, where="post", color=_BLUE, label=WANTED)
        load.step(panels.days, panels.submitted_gpus, where="post", color=_ORANGE, linewidth=0.8, label=SUBMITTED)
        load.legend(frameon=False)
        places = range(len(panels.sizes))
        sizes.bar([place - 0.2 for place in places], panels.workloads, 0.4, color=_BLUE, label="workloads")
        sizes.bar([place + 0.2 for place in places], panels.gpu_hours, 0.4, color=_GREEN, label="GPU-hours")
        sizes.set_xticks(list(places), panels.sizes)
        sizes.legend(frameon=False)
        durations.step(panels.duration_s, panels.share, where="post", color=_BLUE)
        durations.set_xscale("log")
        durations.set_xlabel("seconds")
        tenants.barh(panels.tenants[::-1], panels.tenant_gpu_hours[::-1], color=_GREEN)
        for axes, name in ((load, LOAD), (sizes, SIZES), (durations, DURATIONS), (tenants, TENANTS)):
            axes.set_title(name, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_axisbelow(True)
            axes.grid(alpha=0.3)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)


def _write_page(path: Path, title: str, panels: _Panels) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(rows=2, cols=2, subplot_titles=(LOAD, SIZES, DURATIONS, TENANTS))
    step = {"shape": "hv"}
    figure.add_trace(
        go.Scatter(x=panels.days, y=panels.wanted_gpus, name=WANTED, line={"color": _BLUE, **step}), row=1, col=1
    )
    figure.add_trace(
        go.Scatter(x=panels.days, y=panels.submitted_gpus, name=SUBMITTED, line={"color": _ORANGE, **step}),
        row=1,
        col=1,
    )
    figure.add_trace(go.Bar(x=panels.sizes, y=panels.workloads, name="workloads", marker_color=_BLUE), row=1, col=2)
    figure.add_trace(go.Bar(x=panels.sizes, y=panels.gpu_hours, name="GPU-hours", marker_color=_GREEN), row=1, col=2)
    figure.add_trace(
        go.Scatter(
            x=panels.duration_s, y=panels.share, name="durations", line={"color": _BLUE, **step}, showlegend=False
        ),
        row=2,
        col=1,
    )
    figure.add_trace(
        go.Bar(
            x=panels.tenant_gpu_hours[::-1],
            y=panels.tenants[::-1],
            orientation="h",
            name="tenants",
            marker_color=_GREEN,
            showlegend=False,
        ),
        row=2,
        col=2,
    )
    figure.update_xaxes(type="category", row=1, col=2)
    figure.update_yaxes(type="category", row=2, col=2)
    figure.update_xaxes(type="log", title_text="seconds", row=2, col=1)
    figure.update_layout(title=title, template="plotly_white", height=800)
    figure.write_html(path, include_plotlyjs=True, full_html=True, div_id="trace")
