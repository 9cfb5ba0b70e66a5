"""What a solver is given beside the problem, and what it returns: a better placement and the moves that lead there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Floats, Indices, Integers

Progress = Callable[[str, float], bool]
"""Is told what is being done and which part of it is done, in [0, 1]; returns whether to go on. A solver that is stopped
returns the best that it has: a legal placement at any time."""


def undisturbed(_what: str, _done: float) -> bool:
    """Progress that nobody watches, of work that nobody stops."""
    return True


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """What may be copied in a day."""

    total_bytes: float = float("inf")
    link_bytes: Floats | None = None
    """(R, R) from the first region to the second; None: links are no limit. 0: nothing is copied over the link."""

    def links(self, regions: int) -> Floats:
        """(R, R), endless where there is no limit."""
        return np.full((regions, regions), np.inf) if self.link_bytes is None else self.link_bytes


@dataclass(frozen=True, slots=True)
class Start:
    """Where the tables are before."""

    home: Indices
    """(T,)"""
    replicas: Integers
    """(T,) bit r: region r holds a complete copy. Making it the home copies nothing."""


class Moves(NamedTuple):
    """Tables that change their home, each once, in the order in which to move them; columns."""

    table: Indices
    source: Indices
    target: Indices
    bytes: Floats
    """To copy; 0 where the target held a replica."""
    reads: Floats
    """How much each term of the objective sank by the move, when it was made."""
    gpu: Floats
    storage: Floats


@dataclass(frozen=True, slots=True)
class Solution:
    """A placement."""

    home: Indices
    moves: Moves
    bound: float | None = None
    """No placement costs less, where the solver knows."""
    finished: bool = True
    """Whether it ended by itself, and not because it was stopped."""
    remarks: tuple[str, ...] = field(default=())


class Solver(Protocol):
    """A way to a better placement. The start is never made worse: at the least it is returned as it is."""

    def solve(
        self,
        problem: PlacementProblem,
        start: Start,
        limits: MoveLimits,
        rng: np.random.Generator,
        progress: Progress = undisturbed,
    ) -> Solution:
        """The best placement that it finds within the limits; deterministic by the generator's seed."""
        ...


def no_moves() -> Moves:
    """Nothing moves."""
    empty = np.zeros(0, np.int32)
    nothing = np.zeros(0)
    return Moves(empty, empty, empty, nothing, nothing, nothing, nothing)
