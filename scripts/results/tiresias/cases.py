"""Which runs there are: traces at three loads, the policies of Tiresias §5.3, and variants of its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from domain.eviction import DEFAULT_RULE, EvictionRule
from domain.tenant import HIGHEST_PRIORITY, Tenant
from formats.trace import TraceRow
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.time_slice import TimeSlice
from simulator.baselines.gandiva import GANDIVA
from simulator.baselines.tiresias import BOUNDED, PROMOTE_KNOB, THRESHOLDS_GPU_S, TIRESIAS_LAS
from simulator.inputs.regions import anywhere
from simulator.inputs.tenants import unlimited_tenants
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called

DAY_S = 86_400.0
GPUS_PER_MACHINE = 8
LOADS = (0.7, 1.0, 1.3)
MIDDLE_LOAD = 1.0
HIGH_LOAD = 1.3
REFERENCE = "tiresias_las"
SLICED = "gandiva, slices of 1 h"
POLICIES = ("tiresias_las", "tiresias_gittins", "yarn_cs", "best_effort", "srtf", SLICED)
SLICE_S = 3600.0
"""Instead of Gandiva's minute: where a switch takes minutes, shorter slices would leave no time for work."""
RUN_SEED = 1


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """A part of a public trace, and the GPUs that its work would fill."""

    file: str
    from_day: float
    until_day: float
    title: str

    def rows(self, rows: Sequence[TraceRow]) -> tuple[TraceRow, ...]:
        """What is submitted in the window, to run anywhere."""
        from_s, until_s = self.from_day * DAY_S, self.until_day * DAY_S
        return anywhere(row for row in rows if from_s <= row.submit_s < until_s and row.gpus > 0)

    def gpus(self, rows: Sequence[TraceRow], load: float) -> int:
        """So many that what the window submits is `load` times what they can do in it, in whole machines."""
        offered = sum(row.gpus * row.duration_s for row in rows) / ((self.until_day - self.from_day) * DAY_S)
        largest = max(row.gpus for row in rows)
        return max(math.ceil(offered / load / GPUS_PER_MACHINE) * GPUS_PER_MACHINE, 2 * largest)


TRACES: Mapping[str, TraceWindow] = MappingProxyType(
    {
        "philly": TraceWindow("philly_jobs.csv.gz", 49, 63, "Philly, days 49–63"),
        "venus": TraceWindow("venus_jobs.csv.gz", 16, 32, "Venus, days 16–32"),
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    trace: str
    load: float
    variant: str
    """A policy, or one of `VARIANTS`."""


def las(
    thresholds_gpu_s: tuple[float, ...] = THRESHOLDS_GPU_S,
    promote_knob: float | None = PROMOTE_KNOB,
    eviction: EvictionRule = BOUNDED,
) -> Policy:
    """2D-LAS with these parameters instead of its defaults."""
    return replace(TIRESIAS_LAS, levels=AttainedService(thresholds_gpu_s, promote_knob), eviction=eviction)


SHORT_GPU_S = 3200.0
"""The threshold of the paper's testbed (§5.2)."""
VARIANTS: Mapping[str, Policy] = MappingProxyType(
    {
        "K=2, 3,200": las((SHORT_GPU_S,)),
        "K=2, 72,000": las((72_000.0,)),
        "K=2, 180,000": las((180_000.0,)),
        "K=3, 3,200 and 36,000": las((SHORT_GPU_S, 36_000.0)),
        "K=4, 3,200, 36,000 and 360,000": las((SHORT_GPU_S, 36_000.0, 360_000.0)),
        "knob 1": las(promote_knob=1.0),
        "knob 8": las(promote_knob=8.0),
        "no promotion": las(promote_knob=None),
        "evictions unbounded, as in the paper": las(eviction=DEFAULT_RULE),
    }
)
"""What is changed of the defaults; thresholds are in GPU-seconds."""
VARIANTS_AT_HIGH_LOAD = (
    "K=2, 72,000",
    "K=2, 180,000",
    "knob 8",
    "no promotion",
    "evictions unbounded, as in the paper",
)
"""Promotion and long thresholds have something to do only where work has to wait for long."""
VARIED = MappingProxyType({MIDDLE_LOAD: tuple(VARIANTS), HIGH_LOAD: VARIANTS_AT_HIGH_LOAD})
"""Which variants are run, by load."""


def policy_of(case: Case) -> Policy:
    if case.variant == SLICED:
        return replace(GANDIVA, levels=TimeSlice(SLICE_S))
    return VARIANTS[case.variant] if case.variant in VARIANTS else policy_called(case.variant)


def all_cases(traces: Sequence[str]) -> tuple[Case, ...]:
    """Every run of the document, the long ones first."""
    return (
        *(Case(trace, load, policy) for load in sorted(LOADS, reverse=True) for trace in traces for policy in POLICIES),
        *(
            Case(trace, load, variant)
            for load in sorted(VARIED, reverse=True)
            for trace in traces
            for variant in VARIED[load]
        ),
    )


def tenants_of(rows: Sequence[TraceRow]) -> tuple[Tenant, ...]:
    """Nobody has a quota: the policies compared know none."""
    return unlimited_tenants(rows, default_priority=HIGHEST_PRIORITY)
