"""The runs of the document: plans of generated warehouses, random small ones beside their bounds, and days in the simulator."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, replace

import numpy as np

from data_placement.objective.figures import PlacementFigures
from data_placement.objective.goals import PRESETS, V2
from data_placement.objective.placement_state import state_of, total_cost
from data_placement.objective.problem import problem_of
from data_placement.placement_plan import PlacementPlan, plan_placement
from data_placement.replicas import ReplicaPolicy
from data_placement.solvers.mixed_integer import MixedInteger
from data_placement.solvers.plan import MoveLimits, PlacementTask, Solver, Start
from data_placement.solvers.registry import SOLVERS
from data_placement.solvers.single_moves import SingleMoves
from data_placement.warehouse_generator import generate_warehouse
from domain.events import JsonValue
from domain.identifiers import ANY_GPU_MODEL
from domain.resources import Quota
from domain.tenant import HIGHEST_PRIORITY, Tenant
from domain.warehouse import Warehouse
from services.simulation.memory import forget_peak_memory, peak_memory_mib
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import Simulation
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.warehouse_day import FIRST_TIME, TENANT, catalog_of, day_of, fleet_of
from simulator.policies.registry import policy_called

SEED = 1
NO_PLAN = "none"
PAPER = "single_moves, one round"
COMPARED = (PAPER, "single_moves", "hill_climbing", "late_acceptance")
"""Solvers beside the exact one."""


@dataclass(frozen=True, slots=True)
class PlanCase:
    """A plan of a generated warehouse."""

    tables: int
    regions: int
    version: str
    solver: str


@dataclass(frozen=True, slots=True)
class GapCase:
    """Every solver on one random warehouse that HiGHS can solve."""

    tables: int
    regions: int
    seed: int


@dataclass(frozen=True, slots=True)
class DayCase:
    """A day of workloads in the simulator, the tables being where a solver puts them; copies or none."""

    tables: int
    regions: int
    solver: str
    copies: bool


Case = PlanCase | GapCase | DayCase


def all_cases() -> list[Case]:
    """Everything that the document shows; what takes longest comes first."""
    searched = [PlanCase(100_000, regions, "v2", "late_acceptance") for regions in (20, 10)]
    sizes = [(tables, regions) for tables in (1_000_000, 100_000, 10_000) for regions in (20, 10)]
    climbed = [PlanCase(*size, version, "hill_climbing") for size in sizes for version in ("v2", "v1")]
    smaller = [PlanCase(*size, "v2", name) for size in sizes for name in (PAPER, "single_moves")]
    smaller += [PlanCase(*size, "v2", "late_acceptance") for size in sizes[4:]]
    smaller += [PlanCase(*size, "v2", "joint") for size in sizes[2:]]
    days = [DayCase(2_000, 6, NO_PLAN, copies=False)]
    days += [
        DayCase(2_000, 6, solver, copies) for solver in ("hill_climbing", "late_acceptance") for copies in (False, True)
    ]
    gaps = [GapCase(tables, regions, seed) for tables, regions in ((30, 3), (80, 4)) for seed in range(1, 9)]
    return [*searched, *climbed, *smaller, *days, *gaps]


def takes_part(case: Case, solver: str) -> bool:
    """Whether a solver runs in a case."""
    return solver in COMPARED if isinstance(case, GapCase) else case.solver == solver


def run_case(case: Case) -> dict[str, JsonValue]:
    """The figures of a case."""
    if isinstance(case, PlanCase):
        return _run_plan(case)
    return _run_gap(case) if isinstance(case, GapCase) else _run_day(case)


def _solver(name: str) -> Solver:
    return SingleMoves(rounds=1) if name == PAPER else SOLVERS[name]()


def compile_everything() -> None:
    """So that times are those of planning alone."""
    small = generate_warehouse(200, 3, np.random.default_rng(SEED))
    for name in ("single_moves", "hill_climbing", "late_acceptance"):
        plan_placement(small, V2, SOLVERS[name](), MoveLimits(), ReplicaPolicy(), np.random.default_rng(SEED))


def _run_plan(case: PlanCase) -> dict[str, JsonValue]:
    compile_everything()
    warehouse = generate_warehouse(case.tables, case.regions, np.random.default_rng(SEED))
    forget_peak_memory()
    begun_s, begun_processor_s = time.monotonic(), time.process_time()
    plan = _planned(warehouse, case.version, case.solver, ReplicaPolicy())
    taken_s, processor_s = time.monotonic() - begun_s, time.process_time() - begun_processor_s
    stored = float(warehouse.tables.size_bytes.sum())
    copies = plan.replicas
    extra = copies.bytes_for_jobs + copies.bytes_against_disasters + copies.bytes_of_hot_tables
    return {
        "kind": "plan",
        **asdict(case),
        "jobs": warehouse.jobs.count,
        "pairs": len(warehouse.jobs.tables),
        "before": _figures(plan.before),
        "after": _figures(plan.after),
        "moves": len(plan.solution.moves.table),
        "moved_share": float(plan.solution.moves.bytes.sum()) / stored,
        "extra_storage": extra / stored,
        "extra_for_jobs": copies.bytes_for_jobs / stored,
        "wall_s": round(taken_s, 1),
        "processor_s": round(processor_s, 1),
        "peak_mib": round(peak_memory_mib()),
    }


def _planned(warehouse: Warehouse, version: str, solver: str, policy: ReplicaPolicy) -> PlacementPlan:
    rng = np.random.default_rng(SEED)
    return plan_placement(warehouse, PRESETS[version], _solver(solver), MoveLimits(), policy, rng)


def _figures(figures: PlacementFigures) -> dict[str, JsonValue]:
    return {
        "cost": figures.total,
        "reads": figures.reads,
        "gpu": figures.gpu,
        "storage": figures.storage,
        "overload": figures.overload if math.isfinite(figures.overload) else None,
        "deviation": figures.overload_deviation,
        "home": figures.home_training_rate,
        "collocation": figures.collocation_rate,
    }


def _run_gap(case: GapCase) -> dict[str, JsonValue]:
    """Costs of all solvers on a warehouse that is small enough to be solved exactly, and the bound."""
    warehouse = generate_warehouse(case.tables, case.regions, np.random.default_rng(case.seed))
    problem = problem_of(warehouse, replace(V2, home_training_share=0.0))
    start = Start(warehouse.tables.home, warehouse.tables.replicas)
    task = PlacementTask(problem, start, np.random.default_rng(SEED))
    exact = MixedInteger(time_limit_s=60.0).solve(task)
    costs: dict[str, JsonValue] = {"start": total_cost(state_of(problem, start.home))}
    for name in COMPARED:
        fresh = replace(task, rng=np.random.default_rng(SEED))
        costs[name] = total_cost(state_of(problem, _solver(name).solve(fresh).home))
    costs["milp"] = total_cost(state_of(problem, exact.home))
    pairs = len(warehouse.jobs.tables)
    return {
        "kind": "gap",
        **asdict(case),
        "jobs": warehouse.jobs.count,
        "pairs": pairs,
        "bound": exact.bound,
        "costs": costs,
    }


def _run_day(case: DayCase) -> dict[str, JsonValue]:
    """How many workloads of a day are without a region that has their tables and their hardware when they come."""
    warehouse = generate_warehouse(case.tables, case.regions, np.random.default_rng(SEED))
    rows = day_of(warehouse, np.random.default_rng(SEED))
    home, masks = warehouse.tables.home, warehouse.tables.replicas
    if case.solver != NO_PLAN:
        policy = ReplicaPolicy() if case.copies else ReplicaPolicy(False, False, 0.0)
        plan = _planned(warehouse, "v2", case.solver, policy)
        home, masks = plan.solution.home, plan.replicas.masks
    catalog = catalog_of(warehouse, home, masks)
    tenants = (Tenant(TENANT, HIGHEST_PRIORITY, Quota.of({ANY_GPU_MODEL: 1_000_000})),)
    given = SimulationInput("a day", rows, fleet_of(warehouse), tenants, catalog=catalog)
    begun_s = time.process_time()
    simulation = Simulation(given, policy_called("mast"), SimulationSettings(check_every_events=0), SEED)
    record = simulation.run()
    waited_s = record.workloads.first_started_s - record.workloads.submitted_s
    first = np.array([row.workload_id.startswith(FIRST_TIME) for row in rows])
    without = np.isnan(record.workloads.first_started_s)
    return {
        "kind": "day",
        **asdict(case),
        "workloads": len(rows),
        "first_time": int(first.sum()),
        "without_data": int(without.sum()),
        "first_time_without_data": int((without & first).sum()),
        "started": int((~without).sum()),
        "mean_wait_s": float(np.nanmean(waited_s)),
        "p95_wait_s": float(np.nanquantile(waited_s, 0.95)),
        "processor_s": round(time.process_time() - begun_s, 1),
    }
