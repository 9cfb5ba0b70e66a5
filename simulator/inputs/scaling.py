"""A trace made busier, longer, larger or repeated, or fitted to a load. What is drawn comes from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from domain.identifiers import WorkloadId
from formats.trace import GREATEST_GPUS, TraceRow
from simulator.inputs.trace_files import submission_order


class LoadBy(StrEnum):
    """What is changed to reach a load."""

    ARRIVALS = "arrivals"
    DURATIONS = "durations"


@dataclass(frozen=True, slots=True)
class Scale:
    """What is changed; the steps are taken in this order, the load last."""

    copies: int = 1
    """So many of each workload; the first stays as it is."""
    jitter_s: float = 0.0
    """The other copies come up to so much earlier or later."""
    arrivals: float = 1.0
    """2: twice as many in the same time, that is the time between two submissions is halved."""
    durations: float = 1.0
    gpus: float = 1.0
    """Rounded, at least 1 for a GPU workload; CPUs and memory that it asks for go with them."""
    greatest_gpus: int | None = None
    """A larger workload is cut down to this."""
    load: float | None = None
    """Offered GPUs as a share of `fleet_gpus`, over the time from the first to the last submission."""
    fleet_gpus: int = 0
    load_by: LoadBy = LoadBy.ARRIVALS


def scale_rows(rows: Sequence[TraceRow], scale: Scale, rng: np.random.Generator) -> tuple[TraceRow, ...]:
    """The changed rows, by (submit_s, workload_id); the same seed gives the same ones.

    Raises ValueError for a load that cannot be reached: nothing is offered, or all comes at one moment.
    """
    made = list(rows) if scale.copies == 1 else _replicated(rows, scale.copies, scale.jitter_s, rng)
    if made and scale.arrivals != 1.0:
        made = _faster(made, scale.arrivals)
    if scale.durations != 1.0:
        made = [replace(row, duration_s=_rounded(row.duration_s * scale.durations)) for row in made]
    if scale.gpus != 1.0 or scale.greatest_gpus is not None:
        made = [_resized(row, scale.gpus, scale.greatest_gpus) for row in made]
    if scale.load is not None:
        factor = scale.load * scale.fleet_gpus / _offered_gpus(made)
        if scale.load_by is LoadBy.ARRIVALS:
            made = _faster(made, factor)
        else:
            made = [replace(row, duration_s=_rounded(row.duration_s * factor)) for row in made]
    return tuple(sorted(made, key=submission_order))


def _offered_gpus(rows: Sequence[TraceRow]) -> float:
    if not rows:
        raise ValueError("there is no workload, so there is no load to scale")
    first, last = min(row.submit_s for row in rows), max(row.submit_s for row in rows)
    gpu_seconds = sum(row.gpus * row.duration_s for row in rows)
    if last <= first or gpu_seconds <= 0:
        what = "all workloads come at one moment" if gpu_seconds > 0 else "no workload has GPUs"
        raise ValueError(f"{what}, so no load can be reached")
    return gpu_seconds / (last - first)


def _replicated(rows: Sequence[TraceRow], copies: int, jitter_s: float, rng: np.random.Generator) -> list[TraceRow]:
    taken = {str(row.workload_id) for row in rows}
    moves = rng.uniform(-jitter_s, jitter_s, size=(copies - 1, len(rows)))
    made = list(rows)
    for copy in range(2, copies + 1):
        for row, move in zip(rows, moves[copy - 2].tolist(), strict=True):
            # A name has at most 128 characters, and someone may already be called that.
            name = f"{row.workload_id[:110]}.{copy}"
            while name in taken:
                name += "x"
            taken.add(name)
            submit_s = round(max(0.0, row.submit_s + move), 3)
            made.append(replace(row, workload_id=WorkloadId(name), submit_s=submit_s))
    return made


def _faster(rows: Sequence[TraceRow], factor: float) -> list[TraceRow]:
    """All submissions nearer to the first one."""
    first = min(row.submit_s for row in rows)
    return [replace(row, submit_s=round(first + (row.submit_s - first) / factor, 3)) for row in rows]


def _rounded(duration_s: float) -> float:
    """To milliseconds; no workload is over at once."""
    return max(0.001, round(duration_s, 3))


def _resized(row: TraceRow, factor: float, greatest: int | None) -> TraceRow:
    if row.gpus == 0:
        return row
    gpus = max(1, round(row.gpus * factor))
    gpus = min(gpus, GREATEST_GPUS if greatest is None else greatest)
    if gpus == row.gpus:
        return row
    share = gpus / row.gpus
    divides = row.tasks is not None and gpus % row.tasks == 0
    return replace(
        row,
        gpus=gpus,
        # Tasks among which the GPUs no longer divide are left open, and with them the bounds around them.
        tasks=row.tasks if divides else None,
        min_tasks=row.min_tasks if divides else None,
        max_tasks=row.max_tasks if divides else None,
        cpus=None if row.cpus is None else row.cpus * share,
        memory_gib=None if row.memory_gib is None else row.memory_gib * share,
    )
