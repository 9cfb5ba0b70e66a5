"""Cells as public logs write them: dates, GPUs in shares, tasks that may not divide what they share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from domain.identifiers import TenantId
from formats.problems import in_quotes
from formats.row_report import RowReport
from formats.trace import GREATEST_GPUS, GREATEST_TASKS
from formats.trace_cells import BadCell, name_cell, number_cell, whole_cell
from simulator.inputs.importers.accepting import LeftOut

NEVER = frozenset({"", "None", "Unknown", "N/A", "NaT", "nan", "null"})
"""What logs write for a time that has not come."""
_SHARED = "ask for a share of a GPU, and get a whole one"
_UNEVEN = "are on machines among which their GPUs do not divide evenly; the tasks are left open"


def date_cell(column: str, cell: str) -> float:
    """Seconds since the epoch of an ISO date and time; one without a zone is taken as UTC. Raises BadCell."""
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        raise BadCell(column, f"must be a date and time such as 2020-06-09 18:41:01, not {in_quotes(cell)}") from None
    seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if seconds < 0:
        raise BadCell(column, f"must be after 1970, not {in_quotes(cell)}")
    return seconds


def seconds_between(cells: Mapping[str, str], start: str, end: str) -> float:
    """Seconds from one date to another; LeftOut where there was no start or no end yet, or nothing between."""
    if cells[start] in NEVER:
        raise LeftOut("never started")
    if cells[end] in NEVER:
        raise LeftOut("had not ended when the log was written")
    duration_s = date_cell(end, cells[end]) - date_cell(start, cells[start])
    return positive_duration(duration_s, end, f"is before {start}")


def positive_duration(duration_s: float, column: str, negative: str) -> float:
    """The duration; BadCell when it is negative, LeftOut when it is zero."""
    if duration_s < 0:
        raise BadCell(column, negative)
    if duration_s == 0:
        raise LeftOut("ran for no time at all")
    return duration_s


def gpus_cell(column: str, cell: str) -> int:
    """A whole number of GPUs; empty is none. Raises BadCell."""
    return whole_cell(column, cell, 0, GREATEST_GPUS) if cell else 0


def gpus_of_share(column: str, cell: str, whole: float, row_report: RowReport) -> int:
    """GPUs of a request in hundredths (`whole` 100) or thousandths (1000): a share becomes a whole GPU."""
    share = number_cell(column, cell) / whole if cell else 0.0
    gpus = math.ceil(share - 1e-9)
    if gpus > GREATEST_GPUS:
        raise BadCell(column, f"must be at most {GREATEST_GPUS} GPUs, not {in_quotes(cell)}")
    if abs(gpus - share) > 1e-9:
        row_report.adjust(_SHARED)
    return gpus


def tasks_on_machines(column: str, cell: str, gpus: int, row_report: RowReport) -> int | None:
    """One task per machine where the GPUs divide evenly among them, else None: as many as are needed."""
    if cell in NEVER:
        return None
    machines = whole_cell(column, cell, 0, GREATEST_TASKS)
    if machines == 0:
        return None
    if gpus % machines:
        row_report.adjust(_UNEVEN)
        return None
    return machines


def tenant_cell(cells: Mapping[str, str], *columns: str, otherwise: str) -> TenantId:
    """The first of these columns that says something; raises BadCell for a word that cannot be a name."""
    for column in columns:
        cell = cells.get(column, "")
        if cell not in NEVER:
            return TenantId(name_cell(column, cell))
    return TenantId(otherwise)
