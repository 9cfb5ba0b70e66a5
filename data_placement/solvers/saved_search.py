"""What a solver that was stopped keeps, so that it goes on exactly where it was.

Rule: running sums are kept as they are, with their rounding, and not made anew from the homes; so the rest of the way
gives the same placement, bit by bit, as if nothing had stopped it.
"""

from __future__ import annotations

import hashlib
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.placement_state import PlacementState, state_of
from data_placement.objective.problem import PlacementProblem
from data_placement.solvers.plan import PlacementTask, SavedSearch

_SOLVER, _TASK = "solver", "task"
_MADE_ANEW = ("tables_in", "bytes_row", "job_region")
"""Whole numbers that follow from the homes: large, and exact."""
Columns = TypeVar("Columns", bound=tuple[object, ...])


class CannotResume(ValueError):
    """The saved search is another solver's, or belongs to another warehouse or other settings."""


def saved_search(solver: object, task: PlacementTask, parts: SavedSearch) -> dict[str, NDArray[np.generic]]:
    """The parts, and what tells them from those of other solvers and tasks."""
    return {**parts, _SOLVER: np.array(repr(solver)), _TASK: np.array(_fingerprint(task))}


def resumed(solver: object, task: PlacementTask) -> SavedSearch | None:
    """The parts to go on from; None where the task begins at the start. Raises CannotResume."""
    if task.resume is None:
        return None
    for name, mine, what in (
        (_SOLVER, repr(solver), "it was saved by {theirs}, this is {mine}"),
        (_TASK, _fingerprint(task), "warehouse, goals, limits or start differ from those that it was saved with"),
    ):
        theirs = str(task.resume[name]) if name in task.resume else "something else"
        if theirs != mine:
            raise CannotResume(f"the search cannot go on: {what.format(theirs=theirs, mine=mine)}; start anew")
    return task.resume


def packed(prefix: str, columns: tuple[object, ...], without: tuple[str, ...] = ()) -> dict[str, NDArray[np.generic]]:
    """The fields of a named tuple, copied."""
    fields = columns._asdict()  # type: ignore[attr-defined]  # named tuples have no common type
    return {f"{prefix}.{name}": np.array(value) for name, value in fields.items() if name not in without}


def unpacked(prefix: str, columns: Columns, saved: SavedSearch) -> Columns:
    """The named tuple with the fields that were saved; others are as given."""
    fields = columns._asdict()  # type: ignore[attr-defined]  # as above
    kept = {name: saved[f"{prefix}.{name}"] for name in fields if f"{prefix}.{name}" in saved}
    values = {name: value.item() if np.isscalar(fields[name]) else value.copy() for name, value in kept.items()}
    return columns._replace(**values)  # type: ignore[attr-defined,no-any-return]  # as above


def packed_state(state: PlacementState) -> dict[str, NDArray[np.generic]]:
    """The state without what follows exactly from the homes."""
    return packed("state", state, _MADE_ANEW)


def unpacked_state(problem: PlacementProblem, saved: SavedSearch) -> PlacementState:
    """The state as it was."""
    return unpacked("state", state_of(problem, np.asarray(saved["state.home"], np.int32)), saved)


def _fingerprint(task: PlacementTask) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for value in (*task.problem, task.start.home, task.start.replicas, task.limits.links(task.problem.regions)):
        digest.update(np.ascontiguousarray(value).tobytes())
    digest.update(repr(task.limits.total_bytes).encode())
    return digest.hexdigest()
