"""Whole columns of many rows as NumPy arrays: the server packs them, no object is made per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_HEADER_BYTES = 20
"""Dimensions, flag, element type, length, lower bound: four bytes each (array_send of PostgreSQL)."""

_ELEMENTS = {
    "float8": np.dtype([("length", ">i4"), ("value", ">f8")]),
    "int8": np.dtype([("length", ">i4"), ("value", ">i8")]),
    "int4": np.dtype([("length", ">i4"), ("value", ">i4")]),
    "int2": np.dtype([("length", ">i4"), ("value", ">i2")]),
    "bool": np.dtype([("length", ">i4"), ("value", "?")]),
}


def packed(expression: str) -> str:
    """SQL of an aggregate over all rows: the column of this expression, which is never null, as `unpacked` wants it."""
    return f"array_send(array_agg({expression}))"


def unpacked(column: bytes | None, element: str, rows: int) -> NDArray[np.generic]:
    """The column as an array; `element` is the column's type, `rows` how many there must be.

    Raises ValueError when the column has another length or contains nulls.
    """
    dtype = _ELEMENTS[element]
    # Without rows nothing was aggregated: the column is null.
    values = np.frombuffer(column or bytes(_HEADER_BYTES), dtype=dtype, offset=_HEADER_BYTES)
    if len(values) != rows or (values["length"] != dtype["value"].itemsize).any():
        raise ValueError(f"a column of {element} has {len(values)} elements or some nulls, where {rows} were expected")
    native: NDArray[np.generic] = values["value"].astype(dtype["value"].newbyteorder("="))
    return native


def joined(expression: str) -> str:
    """SQL of an aggregate over all rows: the column of this expression, names without line ends, as `split` wants it."""
    return f"string_agg({expression}, E'\\n')"


def split(column: str | None) -> list[str]:
    """The names of a joined column."""
    return [] if column is None else column.split("\n")
