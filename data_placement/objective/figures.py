"""What a placement amounts to, in figures that people compare (MAST §5.3, §5.6)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from data_placement.objective.placement_state import AT_HOME, READS, PlacementState
from data_placement.objective.problem import PlacementProblem
from data_placement.replicas import PartialCopies, collocated_hours
from domain.warehouse import Floats, Indices, Integers


@dataclass(frozen=True, slots=True)
class PlacementFigures:
    """Figures of one placement."""

    reads: float
    """Expression 1, weighted: the share of bytes read across regions, times w1."""
    gpu: float
    """Expression 2, weighted."""
    storage: float
    """Expression 3, weighted."""
    cross_region_bytes: float
    """What jobs read across regions in a day."""
    overload: float
    """High-priority GPU demand over supply in the most overloaded region; endless where there is demand and no supply."""
    overload_region: int
    overload_deviation: float
    """The standard deviation of that ratio over the regions that have GPUs."""
    region_load: Floats
    """(R,) that ratio; NaN for a region without GPUs"""
    stored_share: Floats
    """(R,) of storage, tables at home only"""
    home_training_rate: float
    """Expression 6: the part of high-priority GPU hours that are trained at home; 1 when there are none."""
    collocation_rate: float
    """The part of high-priority GPU hours for which a region holds all tables, copies counted, and has the GPUs."""
    exceeded: tuple[str, ...]
    """Which limits this placement exceeds, in words."""

    @property
    def total(self) -> float:
        return self.reads + self.gpu + self.storage


def figures_of(
    problem: PlacementProblem,
    state: PlacementState,
    masks: Integers,
    job_region: Indices | None = None,
    region_names: tuple[str, ...] = (),
    parts: PartialCopies | None = None,
) -> PlacementFigures:
    """The figures of a placement with these copies. `job_region`: where jobs really run; R(job) when None."""
    where = state.job_region if job_region is None else job_region
    counted = problem.high & (where >= 0)
    demand = np.bincount(where[counted], weights=problem.gpu_hours[counted], minlength=problem.regions)
    supply = problem.gpu_supply.sum(axis=0)
    has = supply > 0.0
    load = np.full(problem.regions, np.nan)
    load[has] = demand[has] / supply[has]
    stranded = ~has & (demand > 0.0)
    compared = np.where(stranded, np.inf, np.where(has, load, -1.0))
    most = int(np.argmax(compared)) if problem.regions else -1
    high_hours = float(problem.gpu_hours[problem.high].sum())
    return PlacementFigures(
        reads=float(state.sums[READS]),
        gpu=float(state.gpu_cell_cost.sum()),
        storage=float(state.storage_cell_cost.sum()),
        cross_region_bytes=_cross_region_bytes(problem, state),
        overload=float(max(compared[most], 0.0)),
        overload_region=most,
        overload_deviation=float(np.std(load[has])) if has.any() else 0.0,
        region_load=load,
        stored_share=state.stored / np.maximum(problem.storage_supply, 1e-300),
        home_training_rate=float(state.sums[AT_HOME]) / high_hours if high_hours else 1.0,
        collocation_rate=collocated_hours(problem, state.home, masks, parts) / high_hours if high_hours else 1.0,
        exceeded=exceeded_limits(problem, state, region_names),
    )


def _cross_region_bytes(problem: PlacementProblem, state: PlacementState) -> float:
    across = np.where(state.job_region < 0, problem.read_bytes, 0.0)
    rows = np.flatnonzero(~problem.training & (state.job_region >= 0))
    across[rows] = problem.read_bytes[rows] - state.bytes_in[state.bytes_row[rows], state.job_region[rows]]
    return float(across.sum())


def exceeded_limits(problem: PlacementProblem, state: PlacementState, names: tuple[str, ...]) -> tuple[str, ...]:
    """Which of Expressions 4 to 6 do not hold, one sentence each."""
    found: list[str] = []
    called = names or tuple(str(region) for region in range(problem.regions))
    if problem.storage_limited:
        found += [
            f"{called[region]} stores {state.stored[region]:.4g} bytes of {problem.storage_supply[region]:.4g}"
            for region in np.flatnonzero(state.stored > problem.storage_supply * (1.0 + 1e-12)).tolist()
        ]
    if problem.cpu_limited:
        for application, region in np.argwhere(state.cpu > problem.cpu_supply * (1.0 + 1e-9)).tolist():
            used, quota = state.cpu[application, region], problem.cpu_supply[application, region]
            found.append(f"application {application} uses {used:.4g} CPU hours of {quota:.4g} in {called[region]}")
    if state.sums[AT_HOME] < problem.home_least * (1.0 - 1e-9):
        found.append(
            f"{state.sums[AT_HOME]:.4g} GPU hours of high-priority training are at home, {problem.home_least:.4g} should be"
        )
    return tuple(found)
