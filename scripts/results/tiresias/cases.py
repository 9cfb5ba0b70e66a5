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
from global_scheduler.ordering.gittins import GittinsOrdering
from simulator.baselines.tiresias import BOUNDED, PROMOTE_KNOB, THRESHOLDS_GPU_S, TIRESIAS_GITTINS, TIRESIAS_LAS
from simulator.inputs.regions import anywhere
from simulator.inputs.tenants import unlimited_tenants
from simulator.policies.policy import Policy
from simulator.policies.registry import policy_called

DAY_S = 86_400.0
GPUS_PER_MACHINE = 8
LOADS = (0.7, 1.0, 1.3)
MIDDLE_LOAD = 1.0
REFERENCE = "tiresias_las"
POLICIES = ("tiresias_las", "tiresias_gittins", "yarn_cs", "best_effort", "srtf")
SLICED = "gandiva"
"""Compared in a shorter window: it switches every minute while anything waits."""
RUN_SEED = 1


@dataclass(frozen=True, slots=True)
class TraceWindow:
    """A part of a public trace, and the GPUs that its work would fill."""

    file: str
    from_day: float
    until_day: float
    sliced_until_day: float
    """The end of the shorter window."""
    title: str

    def rows(self, rows: Sequence[TraceRow], *, short: bool = False) -> tuple[TraceRow, ...]:
        """What is submitted in the window, to run anywhere."""
        until_s = DAY_S * (self.sliced_until_day if short else self.until_day)
        return anywhere(row for row in rows if self.from_day * DAY_S <= row.submit_s < until_s and row.gpus > 0)

    def gpus(self, rows: Sequence[TraceRow], load: float, *, short: bool = False) -> int:
        """So many that what the window submits is `load` times what they can do in it, in whole machines."""
        until_day = self.sliced_until_day if short else self.until_day
        offered = sum(row.gpus * row.duration_s for row in rows) / ((until_day - self.from_day) * DAY_S)
        largest = max(row.gpus for row in rows)
        return max(math.ceil(offered / load / GPUS_PER_MACHINE) * GPUS_PER_MACHINE, 2 * largest)


TRACES: Mapping[str, TraceWindow] = MappingProxyType(
    {
        "philly": TraceWindow("philly_jobs.csv.gz", 49, 77, 51, "Philly, days 49–77 (all rows)"),
        "venus": TraceWindow("venus_jobs.csv.gz", 16, 140, 20, "Venus, days 16–140"),
    }
)


@dataclass(frozen=True, slots=True)
class Case:
    """One run."""

    trace: str
    load: float
    variant: str
    """A policy, or one of `VARIANTS`."""
    short: bool = False
    """In the shorter window."""


def las(
    thresholds_gpu_s: tuple[float, ...] = THRESHOLDS_GPU_S,
    promote_knob: float | None = PROMOTE_KNOB,
    eviction: EvictionRule = BOUNDED,
) -> Policy:
    """2D-LAS with these parameters instead of its defaults."""
    return replace(TIRESIAS_LAS, levels=AttainedService(thresholds_gpu_s, promote_knob), eviction=eviction)


def gittins(thresholds_gpu_s: tuple[float, ...], eviction: EvictionRule = BOUNDED) -> Policy:
    """2D-Gittins with these."""
    levels, ordering = AttainedService(thresholds_gpu_s, PROMOTE_KNOB), GittinsOrdering(thresholds_gpu_s)
    return replace(TIRESIAS_GITTINS, levels=levels, ordering=ordering, eviction=eviction)


_FEWEST = 3200.0
VARIANTS: Mapping[str, Policy] = MappingProxyType(
    {
        "K=2, 400": las((400.0,)),
        "K=2, 36,000": las((36_000.0,)),
        "K=2, 180,000": las((180_000.0,)),
        "K=3, 3,200 and 36,000": las((_FEWEST, 36_000.0)),
        "K=4, 3,200, 36,000 and 180,000": las((_FEWEST, 36_000.0, 180_000.0)),
        "knob 1": las(promote_knob=1.0),
        "knob 2": las(promote_knob=2.0),
        "knob 32": las(promote_knob=32.0),
        "no promotion": las(promote_knob=None),
        "as the paper: evictions unbounded": las(eviction=DEFAULT_RULE),
        "600 s, 1 eviction an hour": las(eviction=EvictionRule(600.0, 1)),
        "Gittins, K=3": gittins((_FEWEST, 36_000.0)),
    }
)
"""What is changed of the defaults; thresholds are in GPU-seconds."""


def policy_of(case: Case) -> Policy:
    return VARIANTS[case.variant] if case.variant in VARIANTS else policy_called(case.variant)


def all_cases(traces: Sequence[str]) -> tuple[Case, ...]:
    """Every run of the document, the long ones first."""
    return (
        *(
            Case(trace, MIDDLE_LOAD, policy, short=True)
            for trace in traces
            for policy in (SLICED, *POLICIES[:1], "yarn_cs")
        ),
        *(Case(trace, load, policy) for load in sorted(LOADS, reverse=True) for trace in traces for policy in POLICIES),
        *(Case(trace, MIDDLE_LOAD, variant) for trace in traces for variant in VARIANTS),
    )


def tenants_of(rows: Sequence[TraceRow]) -> tuple[Tenant, ...]:
    """Nobody has a quota: the policies compared know none."""
    return unlimited_tenants(rows, default_priority=HIGHEST_PRIORITY)
