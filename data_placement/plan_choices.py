"""What whoever asks for a plan may choose, and the plan made by it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from data_placement.objective.goals import PRESETS, V2, Goals
from data_placement.placement_plan import PlacementPlan, plan_placement
from data_placement.replicas import ReplicaPolicy
from data_placement.solvers.mixed_integer import MixedInteger
from data_placement.solvers.plan import MoveLimits, Progress, SavedSearch, Solver, undisturbed
from data_placement.solvers.registry import SOLVERS
from domain.warehouse import Warehouse

NO_MOVES = "v0"
"""The preset with which nothing moves: the placement as it is (the paper's V0)."""
PRESET_NAMES = (NO_MOVES, *PRESETS)
_EXACT = "milp"
MOST_SECONDS = 1e6
"""Of a time limit."""


@dataclass(frozen=True, slots=True)
class PlanChoices:
    """How a plan is made. Raises ValueError, naming the field, for what makes no sense."""

    solver: str = "hill_climbing"
    preset: str = "v2"
    """Of MAST §5.6: v0, v1 or v2."""
    time_limit_s: float | None = None
    quota_bytes: float | None = None
    """To copy to new homes at most; None: no limit."""
    keep_to_links: bool = False
    """Whether moves keep to what links carry in a day."""
    home_training_share: float | None = None
    """None: as the preset has it."""
    replicas: bool = True
    """Whether copies beside the homes are planned too."""
    seed: int = 1
    """Of the generator that the plan is made with."""

    def __post_init__(self) -> None:
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, not {self.solver!r}")
        if self.preset not in PRESET_NAMES:
            raise ValueError(f"preset must be one of {', '.join(PRESET_NAMES)}, not {self.preset!r}")
        if self.time_limit_s is not None and not 0.0 < self.time_limit_s <= MOST_SECONDS:
            raise ValueError(
                f"time_limit_s must be more than 0 and at most {MOST_SECONDS:.0f}, not {self.time_limit_s}"
            )
        if self.quota_bytes is not None and not 0.0 <= self.quota_bytes < math.inf:
            raise ValueError(f"quota_bytes must be 0 or more, not {self.quota_bytes}")
        if self.home_training_share is not None and not 0.0 <= self.home_training_share <= 1.0:
            raise ValueError(f"home_training_share must be between 0 and 1, not {self.home_training_share}")
        if self.seed < 0:
            raise ValueError(f"seed must be 0 or more, not {self.seed}")

    def goals(self) -> Goals:
        """The objective."""
        goals = PRESETS.get(self.preset, V2)
        return (
            goals if self.home_training_share is None else replace(goals, home_training_share=self.home_training_share)
        )


def plan_by_choices(
    warehouse: Warehouse,
    choices: PlanChoices,
    rng: np.random.Generator,
    progress: Progress = undisturbed,
    *,
    resume: SavedSearch | None = None,
) -> PlacementPlan:
    """The plan for a warehouse; the same choices give the same plan, unless it is stopped on the way.

    `resume`: what a stopped solver has saved. Raises CannotResume where it belongs to another task.
    """
    limits = MoveLimits(
        total_bytes=math.inf if choices.quota_bytes is None else choices.quota_bytes,
        link_bytes=warehouse.regions.link_bytes_per_day if choices.keep_to_links else None,
    )
    policy = ReplicaPolicy() if choices.replicas else ReplicaPolicy(False, False, 0.0)
    solver = None if choices.preset == NO_MOVES else _solver(choices)
    return plan_placement(warehouse, choices.goals(), solver, limits, policy, rng, progress, resume)


def _solver(choices: PlanChoices) -> Solver:
    """The exact solver keeps to the time limit by itself: nobody is asked whether to go on while it works."""
    if choices.solver == _EXACT and choices.time_limit_s is not None:
        return MixedInteger(choices.time_limit_s)
    return SOLVERS[choices.solver]()
