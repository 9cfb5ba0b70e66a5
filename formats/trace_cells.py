"""The cells of a row in a table of jobs: what they must look like, and what is reported of a row that is left out."""

from __future__ import annotations

import math
import re

from domain.identifiers import IDENTIFIER_PATTERN
from formats.problems import in_quotes

GREATEST_TIME_S = 1e12
_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch
_is_whole = re.compile(r"\+?[0-9]{1,18}(?:\.0*)?", re.ASCII).fullmatch
_is_number = re.compile(r"\+?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch


class BadCell(Exception):
    """Why a row is left out."""

    def __init__(self, column: str, description: str) -> None:
        self.column = column
        self.description = description
        super().__init__(f"{column}: {description}")


def name_cell(column: str, cell: str) -> str:
    """A name, as identifiers are; raises BadCell."""
    if not _is_name(cell):
        rule = "must be a name (1 to 128 letters, digits or . _ : / -, beginning with a letter or digit)"
        raise BadCell(column, f"{rule}, not {in_quotes(cell)}")
    return cell


def number_cell(column: str, cell: str) -> float:
    """A number from 0 to GREATEST_TIME_S; raises BadCell."""
    value = float(cell) if _is_number(cell) else math.nan
    if not 0 <= value <= GREATEST_TIME_S:
        raise BadCell(column, f"must be a number from 0 to {GREATEST_TIME_S:g}, not {in_quotes(cell)}")
    return value


def positive_cell(column: str, cell: str) -> float:
    """A number greater than 0, to GREATEST_TIME_S; raises BadCell."""
    value = number_cell(column, cell)
    if value == 0:
        raise BadCell(column, "must be more than 0")
    return value


def whole_cell(column: str, cell: str, least: int, greatest: int) -> int:
    """A whole number in these bounds, `16` or `16.0`; raises BadCell."""
    if not _is_whole(cell):
        value = -1
    elif "." in cell:
        value = int(float(cell))
    else:
        value = int(cell)
    if not least <= value <= greatest:
        raise BadCell(column, f"must be a whole number from {least} to {greatest}, not {in_quotes(cell)}")
    return value
