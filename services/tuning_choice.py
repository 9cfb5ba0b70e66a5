"""From the name in scheduler.yaml to the mechanism that shares out CPUs and memory in a service (Synergy §4)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cluster_manager.tuning.mechanism import TuningMechanism
from cluster_manager.tuning.mechanisms import TUNING_MECHANISMS
from cluster_manager.tuning.packing_order import PACKING_ORDERS
from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import NO_TUNING, PrioritySection

BY_SUBMISSION = "fifo"

LIVE_TUNINGS: Mapping[str, TuningMechanism] = MappingProxyType(
    {
        "synergy_proportional": TUNING_MECHANISMS["proportional"],
        "synergy_greedy": TUNING_MECHANISMS["greedy"],
        "synergy_tune": TUNING_MECHANISMS["tune"],
        "synergy_opt": TUNING_MECHANISMS["opt"],
        "drf_packing": TUNING_MECHANISMS["drf_packing"],
        "tetris_packing": TUNING_MECHANISMS["tetris_packing"],
    }
)
"""By the names of the policies that simulations know."""


def tuning_mechanism(name: str, source: str = "scheduler.yaml") -> TuningMechanism | None:
    """The mechanism of that name; None for `none`. Raises FormatError for a name that there is not."""
    if name == NO_TUNING:
        return None
    if name in LIVE_TUNINGS:
        return LIVE_TUNINGS[name]
    described = f"there is no tuning {name}; {suggestion(name, {*LIVE_TUNINGS, NO_TUNING}, 'tuning')}"
    raise FormatError(source, [FieldProblem("tuning", described)])


def check_order_of_packing(
    name: str, priorities: Mapping[int, PrioritySection], *, estimated: bool, source: str = "scheduler.yaml"
) -> None:
    """Raises FormatError where the tuning of that name orders the queue itself and priorities name another ordering, or it
    has to know how long workloads will run and nothing estimates it."""
    mechanism = tuning_mechanism(name, source)
    order = None if mechanism is None else PACKING_ORDERS.get(mechanism.name)
    if order is None:
        return
    problems = [
        FieldProblem(
            f"priorities[{priority}].ordering",
            f"{name} orders the queue itself, equals by submission; leave the ordering out, or use synergy_greedy,"
            " which goes by any",
        )
        for priority, section in sorted(priorities.items())
        if "ordering" in section.model_fields_set and section.ordering != BY_SUBMISSION
    ]
    if order.needs_run_times and not estimated:
        described = f"{name} needs to know how long workloads will run; set 'estimates: true' to estimate it, or use drf_packing"
        problems.append(FieldProblem("tuning", described))
    if problems:
        raise FormatError(source, problems)
