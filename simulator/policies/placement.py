"""Plug-in point: placement. Into how many tasks a workload is cut, and whether they must be close together.

On which machines the tasks then go is the cluster managers' decision: best fit, or the fewest racks and machines for
jobs that are to be consolidated (`cluster_manager.packing.best_fit`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from formats.trace_workload import tasks_for_gpus


class SkewDecision(NamedTuple):
    """What placement by skew says of a workload (`cluster_manager.skew.consolidation`)."""

    sensitive: bool | None
    """Whether its skew is above PACKLIMIT; None: its skew is not known."""
    waits: bool
    """Whether a workload above it waits until it can be consolidated."""
    decided_late: bool = False
    """Whether the skew, or the limit, will be known only when the workload has been cut: it is to fit either way."""


class GangShape(NamedTuple):
    """How the GPUs of a workload are asked for: in equal tasks, each of which is on one machine."""

    tasks: int
    consolidate: bool
    """Fewest racks and machines come before least fragmentation."""
    fills: bool = False
    """Machines that are partly taken come before idle ones."""


class PlacementPolicy(Protocol):
    """Cuts a workload into tasks, where its trace does not say how."""

    @property
    def name(self) -> str: ...

    def shape(self, gpus: int, greatest_gpus_per_machine: int, skew: SkewDecision) -> GangShape:
        """The shape of a workload of so many GPUs; `tasks` must divide `gpus`."""
        ...


@dataclass(frozen=True, slots=True)
class Consolidated:
    """Rule: the fewest tasks, so that every machine but the last is taken whole (YARN-CS of Tiresias §2.2, §5)."""

    name: str = "consolidated"

    def shape(self, gpus: int, greatest_gpus_per_machine: int, skew: SkewDecision) -> GangShape:
        tasks = tasks_for_gpus(gpus, greatest_gpus_per_machine)
        return GangShape(tasks, skew.sensitive is True, fills=skew.sensitive is False)


@dataclass(frozen=True, slots=True)
class Scattered:
    """Rule: one task for each GPU, so that any idle GPUs of one cluster will do."""

    name: str = "scattered"

    def shape(self, gpus: int, greatest_gpus_per_machine: int, skew: SkewDecision) -> GangShape:
        return GangShape(max(gpus, 1), consolidate=False)


@dataclass(frozen=True, slots=True)
class BySkew:
    """Rule: above PACKLIMIT on the fewest machines, waiting for them or as far as there are any; else one task for each GPU,
    so that any idle GPUs will do (Tiresias §3.3.2). Of unknown skew: as `Consolidated`, but what is decided late is cut for either."""

    name: str = "by_skew"

    def shape(self, gpus: int, greatest_gpus_per_machine: int, skew: SkewDecision) -> GangShape:
        if skew.decided_late:
            return GangShape(max(gpus, 1), consolidate=False)
        if skew.sensitive is None or (skew.sensitive and skew.waits):
            return GangShape(tasks_for_gpus(gpus, greatest_gpus_per_machine), consolidate=skew.sensitive is True)
        return GangShape(max(gpus, 1), skew.sensitive, fills=not skew.sensitive)
