"""A plan of where tables should be: homes by a solver, then replicas, with figures before and after (MAST §3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from data_placement.community_explanation import Communities
from data_placement.objective.figures import PlacementFigures, exceeded_limits, figures_of
from data_placement.objective.goals import Goals
from data_placement.objective.placement_state import state_of
from data_placement.objective.problem import problem_of
from data_placement.replicas import DecidedCopies, ReplicaPolicy, Replicas, plan_replicas
from data_placement.solvers.plan import (
    MoveLimits,
    PlacementTask,
    Progress,
    SavedSearch,
    Solution,
    Solver,
    Start,
    no_moves,
    undisturbed,
)
from domain.warehouse import Indices, Warehouse


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    """What to do, and what it would change."""

    solution: Solution
    replicas: Replicas
    before: PlacementFigures
    after: PlacementFigures
    job_region_before: Indices
    """(J,) R(job) where the tables are now; -1 for none"""
    communities: Communities = field(default_factory=Communities)
    """Of tables that the same jobs read, where somebody has asked for them"""


def plan_placement(
    warehouse: Warehouse,
    goals: Goals,
    solver: Solver | None,
    limits: MoveLimits,
    policy: ReplicaPolicy,
    rng: np.random.Generator,
    progress: Progress = undisturbed,
    resume: SavedSearch | None = None,
) -> PlacementPlan:
    """The plan for a warehouse. `solver` None: homes stay where they are (the paper's V0), and no copies are made.

    `resume`: what a stopped solver has saved. Raises CannotResume where that is of another task, and
    ValueError where links are limited for another number of regions.
    """
    if limits.link_bytes is not None and limits.link_bytes.shape != (warehouse.regions.count,) * 2:
        raise ValueError(f"link limits are for {limits.link_bytes.shape} regions, there are {warehouse.regions.count}")
    names = warehouse.regions.names
    problem = problem_of(warehouse, goals)
    start = Start(warehouse.tables.home, warehouse.tables.replicas)
    state = state_of(problem, start.home)
    before = figures_of(problem, state, start.replicas, region_names=names)
    if solver is None:
        none = np.zeros_like(start.replicas)
        nothing = Replicas(start.replicas, state.job_region, 0.0, 0.0, 0.0, 0, 0, none, none)
        return PlacementPlan(Solution(start.home, no_moves()), nothing, before, before, state.job_region)
    exceeded = exceeded_limits(problem, state, names)
    region_before = state.job_region
    del state
    solution = solver.solve(PlacementTask(problem, start, rng, limits, progress, resume))
    state = state_of(problem, solution.home)
    decided = None
    if solution.copies is not None and solution.job_region is not None:
        decided = DecidedCopies(solution.copies, solution.job_region)
    replicas = plan_replicas(warehouse, problem, state, policy, decided)
    after = figures_of(problem, state, replicas.masks, replicas.job_region, names, replicas.parts)
    if exceeded:
        remark = f"limits exceeded at the start: {len(exceeded)}; no move makes one worse; the first: {exceeded[0]}"
        solution = replace(solution, remarks=(*solution.remarks, remark))
    return PlacementPlan(solution, replicas, before, after, region_before)
