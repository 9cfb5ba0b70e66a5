"""What a solver is given beside the problem, and what it returns: a better placement and the moves that lead there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from data_placement.objective.problem import PlacementProblem
from domain.warehouse import Floats, Indices, Integers

Progress = Callable[[str, float], bool]
"""Is told what is being done and which part of it is done, in [0, 1]; returns whether to go on. A solver that is stopped
returns the best that it has: a legal placement at any time."""


SavedSearch = Mapping[str, NDArray[np.generic]]
"""What a solver that was stopped needs to go on, as arrays by name."""
CHUNK = 20_000
"""Tables or steps between two looks at whether to go on."""


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


@dataclass(frozen=True, slots=True)
class PlacementTask:
    """What a solver is asked for."""

    problem: PlacementProblem
    start: Start
    rng: np.random.Generator
    limits: MoveLimits = field(default_factory=MoveLimits)
    progress: Progress = undisturbed
    resume: SavedSearch | None = None
    """Where to go on, from `Solution.saved` of the same solver and the same task; the generator is not used then."""


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
    copies: Integers | None = None
    """(T,) sets of regions, where the solver decides them together with the homes"""
    job_region: Indices | None = None
    """(J,) where jobs run with those copies; -1: by the homes"""
    communities: Indices | None = None
    """(T,) the communities of tables that seeded the search, as `communities_of` numbers them; None: it went without"""
    saved: SavedSearch | None = None
    """Of a solver that was stopped and can go on: the rest of the way gives what it would have given undisturbed."""


class Solver(Protocol):
    """A way to a better placement. The start is never made worse: at the least it is returned as it is."""

    def solve(self, task: PlacementTask) -> Solution:
        """The best placement that it finds within the limits; deterministic by the generator's seed.

        Raises CannotResume where the task has a saved search that is not this solver's, or of another task.
        """
        ...


def no_moves() -> Moves:
    """Nothing moves."""
    empty = np.zeros(0, np.int32)
    nothing = np.zeros(0)
    return Moves(empty, empty, empty, nothing, nothing, nothing, nothing)
