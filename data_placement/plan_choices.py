"""What whoever asks for a plan may choose, and the plan made by it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from data_placement.communities import communities_of
from data_placement.community_explanation import describe_communities
from data_placement.copy_choices import CopyChoices, problems_of
from data_placement.objective.goals import PRESETS, V2, Goals
from data_placement.objective.problem import problem_of
from data_placement.placement_plan import PlacementPlan, plan_placement
from data_placement.solvers.lower_bound import DEFAULT_TIME_LIMIT_S, lower_bound
from data_placement.solvers.mixed_integer import MixedInteger
from data_placement.solvers.plan import MoveLimits, Progress, SavedSearch, Solver, Start, undisturbed
from data_placement.solvers.registry import SOLVERS
from domain.warehouse import Warehouse

NO_MOVES = "v0"
"""The preset with which nothing moves: the placement as it is (the paper's V0)."""
PRESET_NAMES = (NO_MOVES, *PRESETS)
_EXACT = "milp"
MOST_SECONDS = 1e6
"""Of a time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChoices(CopyChoices):
    """How a plan is made, and which copies are part of it. Raises ValueError, naming the field, for what makes no sense."""

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
    bound: bool = False
    """Whether to prove also how much better a placement could be at most."""
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
        for problem in problems_of(self):
            raise ValueError(problem)

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
    """The plan for a warehouse, with the communities that explain it.

    The same choices give the same plan, unless it is stopped on the way. `resume`: what a stopped solver has saved. Raises
    CannotResume where it belongs to another task, and FormatError for choices about regions that are not there.
    """
    limits = MoveLimits(
        total_bytes=math.inf if choices.quota_bytes is None else choices.quota_bytes,
        link_bytes=warehouse.regions.link_bytes_per_day if choices.keep_to_links else None,
    )
    solver = None if choices.preset == NO_MOVES else _solver(choices)
    policy = choices.policy(warehouse.regions)
    found = plan_placement(warehouse, choices.goals(), solver, limits, policy, rng, progress, resume)
    if choices.bound:
        found = _bounded(found, warehouse, choices, limits, progress)
    progress("finding what belongs together", 0.0)
    label = found.solution.communities
    if label is None:
        label = communities_of(problem_of(warehouse, choices.goals()), choices.seed)
    return replace(found, communities=describe_communities(warehouse, label, found.solution.home))


def _bounded(
    found: PlacementPlan, warehouse: Warehouse, choices: PlanChoices, limits: MoveLimits, progress: Progress
) -> PlacementPlan:
    """The plan with the better one of the solver's bound and of that which is proven here."""
    time_limit_s = DEFAULT_TIME_LIMIT_S if choices.time_limit_s is None else choices.time_limit_s
    start = Start(warehouse.tables.home, warehouse.tables.replicas)
    proven = lower_bound(problem_of(warehouse, choices.goals()), start, limits, time_limit_s, progress)
    bounds = [bound for bound in (found.solution.bound, proven.bound) if bound is not None]
    remarks = (*found.solution.remarks, proven.remark) if proven.remark else found.solution.remarks
    return replace(found, solution=replace(found.solution, bound=max(bounds, default=None), remarks=remarks))


def _solver(choices: PlanChoices) -> Solver:
    """The exact solver keeps to the time limit by itself: nobody is asked whether to go on while it works."""
    if choices.solver == _EXACT and choices.time_limit_s is not None:
        return MixedInteger(choices.time_limit_s)
    return SOLVERS[choices.solver]()
