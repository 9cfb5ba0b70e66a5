"""Compiles what plans of tables need, once per installation: `python -m services.data_placement.kernels`. No tier waits for it."""

from __future__ import annotations

import numpy as np

from data_placement.plan_choices import PlanChoices, plan_by_choices
from data_placement.warehouse_generator import generate_warehouse

_TABLES = 60
_REGIONS = 3


def compile_plans() -> None:
    """Makes a small plan by each solver that searches: that compiles every kernel of it, or loads it."""
    warehouse = generate_warehouse(_TABLES, _REGIONS, np.random.default_rng(1))
    for solver in ("hill_climbing", "single_moves", "late_acceptance", "joint"):
        plan_by_choices(warehouse, PlanChoices(solver=solver, time_limit_s=60.0), np.random.default_rng(1))


if __name__ == "__main__":
    compile_plans()
