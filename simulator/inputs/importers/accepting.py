"""From the records of a file to rows of a trace, one at a time: what is bad or no work is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from formats.row_report import RowReport
from formats.trace import TraceRow, check_row
from formats.trace_cells import BadCell

Record = TypeVar("Record")


class LeftOut(Exception):
    """This record is all right, but not a workload to run; why, as what follows its number: `3 use no GPU`."""


def accepted_rows(
    records: Iterable[tuple[int, Record]],
    convert: Callable[[Record, RowReport], TraceRow],
    id_column: str,
    row_report: RowReport,
) -> Iterator[TraceRow]:
    """The rows of those records, each with its line, that are workloads.

    `convert` raises BadCell for a record that makes no sense and LeftOut for one that is no work.
    """
    for line, record in records:
        try:
            row = convert(record, row_report)
            check_row(row)
            row_report.claim(id_column, row.workload_id)
        except LeftOut as reason:
            row_report.leave_out(str(reason))
        except BadCell as error:
            row_report.bad(line, error.column, error.description)
        else:
            row_report.rows += 1
            yield row
