"""What became of rows that are not in a trace as they stand in its file, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.output import note
from services.command_line.wording import counted

if TYPE_CHECKING:
    from simulator.inputs.trace_files import Trace


def tell_rows(trace: Trace) -> None:
    """Rows that were left out, adjusted or bad, with the first of the bad ones."""
    row_report = trace.row_report
    for reason, count in row_report.left_out.items():
        note(f"left out: {count:,} {reason}")
    for way, count in row_report.adjusted.items():
        note(f"adjusted: {count:,} {way}")
    if not row_report.bad_rows:
        return
    note(f"bad: {counted(row_report.bad_rows, 'row')}, left out")
    for bad in row_report.shown_bad_rows:
        note(f"  {bad}")
    if row_report.bad_rows > len(row_report.shown_bad_rows):
        note(f"  and {row_report.bad_rows - len(row_report.shown_bad_rows):,} more")
