"""Tables from rows: a table's fields are its columns, and rows name what stands in them alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from operator import attrgetter
from types import MappingProxyType
from typing import TypeVar, cast

import numpy as np

from simulator.results.run_record import AttemptTable, WorkloadTable

TableT = TypeVar("TableT", WorkloadTable, AttemptTable)

_KINDS = MappingProxyType({"Integers": np.int64, "Reals": np.float64, "Flags": np.bool_})
"""By the names of the types of columns, as the tables' definitions have them."""


def table_of(table: type[TableT], rows: Sequence[object], **others: object) -> TableT:
    """The table with one row for each of these, and with `others` as the columns that rows do not name alike.

    Each other column holds what the rows' attribute of its name holds; None becomes not a number. Raises
    AttributeError when rows have no such attribute.
    """
    columns = dict(others)
    for column in fields(table):
        if column.name not in others:
            values: Iterable[float | None] = map(attrgetter(column.name), rows)
            kind = _KINDS[str(column.type)]
            if kind is np.float64:
                values = (math.nan if value is None else value for value in values)
            columns[column.name] = np.fromiter(values, kind, len(rows))
    return cast("Callable[..., TableT]", table)(**columns)
