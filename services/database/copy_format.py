"""Numbers in PostgreSQL's binary format: columns of them in and out, with no object made per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""(rows,) of int64 for a BIGINT, int32 for an INTEGER, float64 for a FLOAT; or of all columns, by name."""

_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_ROWS_AT_ONCE = 100_000


def copied_rows(columns: Sequence[Column]) -> Iterator[bytes]:
    """What `COPY ... FROM STDIN (FORMAT binary)` reads: the rows of these columns, none of them null, some at a time."""
    layout = [("count", ">i2")]
    for place, column in enumerate(columns):
        layout += [(f"bytes{place}", ">i4"), (f"value{place}", column.dtype.newbyteorder(">").str)]
    yield _HEADER
    for begin in range(0, len(columns[0]), _ROWS_AT_ONCE):
        part = [column[begin : begin + _ROWS_AT_ONCE] for column in columns]
        rows = np.empty(len(part[0]), np.dtype(layout))
        rows["count"] = len(columns)
        for place, values in enumerate(part):
            rows[f"bytes{place}"] = values.itemsize
            rows[f"value{place}"] = values
        yield rows.tobytes()
    yield _END


def sent_rows(values: Sequence[tuple[bytes | None]], columns: Mapping[str, str]) -> Column:
    """The rows of these columns, of which `string_agg(int8send(...) || float8send(...) || ..., '')` made the values.

    `columns`: "i8" for int8send, "f8" for float8send, "?" for boolsend. The aggregate of no row is null.
    """
    received = np.dtype([(name, np.dtype(kind).newbyteorder(">")) for name, kind in columns.items()])
    return np.frombuffer(b"".join([value or b"" for (value,) in values]), received)
