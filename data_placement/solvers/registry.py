"""The solvers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from data_placement.solvers.hill_climbing import HillClimbing
from data_placement.solvers.joint import Joint
from data_placement.solvers.late_acceptance import LateAcceptance
from data_placement.solvers.mixed_integer import MixedInteger
from data_placement.solvers.plan import Solver
from data_placement.solvers.single_moves import SingleMoves

SOLVERS: Mapping[str, Callable[[], Solver]] = MappingProxyType(
    {
        "hill_climbing": HillClimbing,
        "single_moves": SingleMoves,
        "late_acceptance": LateAcceptance,
        "joint": Joint,
        "milp": MixedInteger,
    }
)
