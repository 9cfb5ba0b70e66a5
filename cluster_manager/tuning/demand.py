"""What a job may hold for each of its GPUs, and how fast it is then (Synergy §3.2, the job demand vector)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import Integers, Reals
from domain.resources import request_mebibytes, request_millicpus
from domain.sensitivity import AmountsPerGpu, SensitivityProfile

SLOWER = 1.0 - 1e-9
"""A speed below this is slower than the proportional share; above it only rounding is."""
SATURATION = 0.01
"""A speed that is at most this fraction below the greatest one counts as saturated: measurements are no closer."""
CPU, MEMORY = 0, 1
"""Columns of the options of a demand."""


class GpuAmounts(NamedTuple):
    """CPUs and memory for each GPU of a job, the same on every machine (Synergy §4.2), in whole thousandths and MiB."""

    millicpus: int
    mebibytes: int

    @property
    def per_gpu(self) -> AmountsPerGpu:
        """The same in the units of profiles."""
        return AmountsPerGpu(self.millicpus / 1000, self.mebibytes / 1024)

    def within(self, other: GpuAmounts) -> bool:
        """Whether it exceeds the other in neither."""
        return self.millicpus <= other.millicpus and self.mebibytes <= other.mebibytes


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The amounts that are worth while for a job, by ascending speed; each is fewer of something than all faster ones.

    All are at least as fast as the share (I7). The first is the base: the least within the share that is as fast as it.
    All others hold at least the base of both, so that to revert to the base releases and never takes.
    """

    share: GpuAmounts
    options: Integers
    """[option, CPU | MEMORY]"""
    speeds: Reals
    """[option], 1 with the share."""
    best_option: int
    """The least that saturates throughput: what the job asks for first."""

    @property
    def base(self) -> GpuAmounts:
        """What it reverts to."""
        return self.amounts(0)

    @property
    def best(self) -> GpuAmounts:
        """What it asks for first."""
        return self.amounts(self.best_option)

    def amounts(self, option: int) -> GpuAmounts:
        """What an option holds."""
        return GpuAmounts(int(self.options[option, CPU]), int(self.options[option, MEMORY]))


def proportional_demand(share: GpuAmounts) -> Demand:
    """Of a job without a profile: its share and nothing else."""
    return Demand(share, np.array([share], np.int64), np.ones(1), 0)


def demand_of(profile: SensitivityProfile, share: GpuAmounts, most: GpuAmounts | None = None) -> Demand:
    """The demand on machines with this share, with at most so much per GPU where that is more than the share.

    Options are the points of the profile, whole CPUs between them, the share, and the most. Raises ValueError for a
    share of nothing.
    """
    limit = GpuAmounts(
        max(share.millicpus, most.millicpus if most else request_millicpus(profile.cpus_per_gpu[-1])),
        max(share.mebibytes, most.mebibytes if most else request_mebibytes(profile.memory_gib_per_gpu[-1])),
    )
    greatest = math.ceil(profile.cpus_per_gpu[-1])
    cpus = {request_millicpus(each) for each in profile.cpus_per_gpu} | {1000 * each for each in range(1, greatest)}
    memory = {request_mebibytes(each) for each in profile.memory_gib_per_gpu}
    cpus = {each for each in cpus if each <= limit.millicpus} | {share.millicpus, limit.millicpus}
    memory = {each for each in memory if each <= limit.mebibytes} | {share.mebibytes, limit.mebibytes}
    candidates = [GpuAmounts(each, amount) for each in sorted(cpus) for amount in sorted(memory)]
    speeds = {each: profile.speed(each.per_gpu, share.per_gpu) for each in candidates}
    base = next(each for each in candidates if each.within(share) and speeds[each] >= SLOWER)
    above = [each for each in candidates if base.within(each)]
    # By falling speed, then rising amounts: what is dominated comes after what dominates it.
    above.sort(key=lambda each: (-speeds[each], each))
    kept: list[GpuAmounts] = []
    for each in above:
        if not any(other.within(each) for other in kept):
            kept.append(each)
    kept.reverse()
    wanted = max(speeds[kept[-1]] * (1.0 - SATURATION), speeds[kept[0]])
    best = min(each for each in kept if speeds[each] >= wanted)
    return Demand(
        share, np.array(kept, np.int64).reshape(-1, 2), np.array([speeds[each] for each in kept]), kept.index(best)
    )


class DemandBook:
    """Demands that were worked out once, for the profiles and machines that are asked for again and again."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[SensitivityProfile | None, GpuAmounts, GpuAmounts | None], Demand] = {}

    def of(self, profile: SensitivityProfile | None, share: GpuAmounts, most: GpuAmounts | None = None) -> Demand:
        """As `demand_of`; without a profile as `proportional_demand`. The same object for the same question."""
        key = profile, share, most
        demand = self._known.get(key)
        if demand is None:
            demand = proportional_demand(share) if profile is None else demand_of(profile, share, most)
            self._known[key] = demand
        return demand


def most_per_gpu(job_gpus: int, machine_gpus: int, millicpus: int, mebibytes: int) -> GpuAmounts:
    """What a job may hold for each GPU: all of as few such machines as its GPUs need (Synergy §6)."""
    machines = -(-job_gpus // machine_gpus)
    return GpuAmounts(millicpus * machines // job_gpus, mebibytes * machines // job_gpus)
