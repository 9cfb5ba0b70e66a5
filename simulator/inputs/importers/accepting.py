"""From the records of a file to rows of a trace, one at a time: what is bad or no work is told to the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from formats.row_ledger import RowLedger
from formats.trace import TraceRow, check_row
from formats.trace_cells import BadCell

Record = TypeVar("Record")


class LeftOut(Exception):
    """This record is all right, but not a workload to run; why, as what follows its number: `3 use no GPU`."""


def accepted_rows(
    records: Iterable[tuple[int, Record]],
    convert: Callable[[Record, RowLedger], TraceRow],
    id_column: str,
    ledger: RowLedger,
) -> Iterator[TraceRow]:
    """The rows of those records, each with its line, that are workloads.

    `convert` raises BadCell for a record that makes no sense and LeftOut for one that is no work.
    """
    for line, record in records:
        try:
            row = convert(record, ledger)
            check_row(row)
            ledger.claim(id_column, row.workload_id)
        except LeftOut as reason:
            ledger.leave_out(str(reason))
        except BadCell as error:
            ledger.bad(line, error.column, error.description)
        else:
            ledger.rows += 1
            yield row
