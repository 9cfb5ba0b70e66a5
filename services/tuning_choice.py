"""From the name in scheduler.yaml to the mechanism that shares out CPUs and memory in a service (Synergy §4)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cluster_manager.tuning.mechanism import TuningMechanism
from cluster_manager.tuning.mechanisms import TUNING_MECHANISMS
from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import NO_TUNING

LIVE_TUNINGS: Mapping[str, TuningMechanism] = MappingProxyType(
    {
        "synergy_proportional": TUNING_MECHANISMS["proportional"],
        "synergy_tune": TUNING_MECHANISMS["tune"],
        "synergy_opt": TUNING_MECHANISMS["opt"],
    }
)
"""By the names of the policies that simulations know."""
_ONLY_SIMULATED = ("synergy_greedy", "drf_packing", "tetris_packing")


def tuning_mechanism(name: str, source: str = "scheduler.yaml") -> TuningMechanism | None:
    """The mechanism of that name; None for `none`. Raises FormatError for a name that there is not, and for one that a
    service does not follow."""
    if name == NO_TUNING:
        return None
    if name in LIVE_TUNINGS:
        return LIVE_TUNINGS[name]
    if name in _ONLY_SIMULATED:
        described = (
            f"{name} can only be simulated: with it workloads wait for their best demand while GPUs are idle;"
            " use synergy_tune"
        )
    else:
        described = f"there is no tuning {name}; {suggestion(name, {*LIVE_TUNINGS, NO_TUNING}, 'tuning')}"
    raise FormatError(source, [FieldProblem("tuning", described)])
