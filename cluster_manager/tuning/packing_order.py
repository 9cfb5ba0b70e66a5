"""The order of the queue under packings with static demands, at one moment (Synergy §5.7).

Rule: with DRF the workload of the smallest dominant share goes first; with Tetris the one of the greatest score, alignment
less remaining work. They take the place of the ordering within a (priority, level); equals stand by submission.

Workloads that ask for the same in the same regions are of one kind. Of a kind the first submitted is compared with the
first of others, and all stand where it stands: a scan pass scores what is free once, where a simulation scores anew after
every start.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from cluster_manager.capacity.tables import Reals
from cluster_manager.tuning.drf_packing import DrfPacking
from cluster_manager.tuning.packing_demands import packing_scores
from cluster_manager.tuning.tetris_packing import TetrisPacking


class PackedWorkload(NamedTuple):
    """What a packing looks at."""

    kind: Hashable
    """Equal for workloads that ask for the same in the same regions."""
    dominant_share: float
    size: float
    """As `PackingDemands.size`."""


class PackingOrder(Protocol):
    """Orders what waits."""

    @property
    def needs_run_times(self) -> bool:
        """Whether it must know how long workloads will run."""
        ...

    @property
    def looks_at_idle(self) -> bool:
        """Whether it depends on what is free."""
        ...

    def credits(
        self,
        waiting: Sequence[PackedWorkload],
        remaining_s: Reals,
        alignment_of: Callable[[Hashable], float | None],
    ) -> Reals:
        """One number for each, the greatest goes first. `waiting` are by submission; `alignment_of` says of a kind how well it
        is aligned with what is free, None: no machine has what it asks for."""
        ...


class SmallestDominantShare:
    """DRF, each workload a user of its own (DRF §4.1)."""

    needs_run_times = False
    looks_at_idle = False

    def credits(
        self,
        waiting: Sequence[PackedWorkload],
        remaining_s: Reals,
        alignment_of: Callable[[Hashable], float | None],
    ) -> Reals:
        return np.array([-workload.dominant_share for workload in waiting], np.float64)


class GreatestScore:
    """Tetris (§3.3.2)."""

    needs_run_times = True
    looks_at_idle = True

    def credits(
        self,
        waiting: Sequence[PackedWorkload],
        remaining_s: Reals,
        alignment_of: Callable[[Hashable], float | None],
    ) -> Reals:
        first: dict[Hashable, int] = {}
        for row, workload in enumerate(waiting):
            first.setdefault(workload.kind, row)
        aligned = [alignment_of(kind) for kind in first]
        work_left = [float(remaining_s[row]) * waiting[row].size for row in first.values()]
        scores = dict(zip(first, packing_scores(aligned, work_left), strict=True))
        return np.array([scores[workload.kind] for workload in waiting], np.float64)


PACKING_ORDERS: Mapping[str, PackingOrder] = MappingProxyType(
    {DrfPacking().name: SmallestDominantShare(), TetrisPacking().name: GreatestScore()}
)
"""By the name of the mechanism."""
