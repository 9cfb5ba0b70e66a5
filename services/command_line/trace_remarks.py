"""What became of rows that are not in a trace as they stand in its file, on standard error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.output import note
from services.command_line.wording import counted

if TYPE_CHECKING:
    from simulator.inputs.trace_files import Trace


def tell_rows(trace: Trace) -> None:
    """Rows that were left out, adjusted or bad, with the first of the bad ones."""
    ledger = trace.ledger
    for reason, count in ledger.left_out.items():
        note(f"left out: {count:,} {reason}")
    for way, count in ledger.adjusted.items():
        note(f"adjusted: {count:,} {way}")
    if not ledger.bad_rows:
        return
    note(f"bad: {counted(ledger.bad_rows, 'row')}, left out")
    for bad in ledger.shown_bad_rows:
        note(f"  {bad}")
    if ledger.bad_rows > len(ledger.shown_bad_rows):
        note(f"  and {ledger.bad_rows - len(ledger.shown_bad_rows):,} more")
