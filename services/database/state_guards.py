"""The life cycle's table in SQL: guards of conditional updates, and states in predicates."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import ColumnElement, literal_column

from domain.life_cycle import Happening, State, states_before


class StateChangeRefused(Exception):
    """The database has workloads in states in which this cannot happen to them; the transaction must be rolled back."""

    def __init__(self, happening: str, expected: int, changed: int) -> None:
        super().__init__(f"'{happening}' can happen to {changed} of {expected} workloads as they are")


def before(happening: Happening) -> list[str]:
    """The states in which this may happen: `state = ANY(...)`."""
    return [state.value for state in states_before(happening)]


def quoted(states: Collection[State]) -> str:
    """As literals, in the order of the life: predicates of partial indexes are matched with those of queries by text."""
    return ", ".join(f"'{state.value}'" for state in State if state in states)


def in_states(column: ColumnElement[Any], states: Collection[State]) -> ColumnElement[bool]:
    """True where the column has one of these states, which are literals of the statement, as in `quoted`."""
    return column.in_([literal_column(f"'{state.value}'") for state in State if state in states])
