"""CPUs and memory above the proportional share: what tuned attempts can do without (Synergy §4.2, step 2; design §4).

Rule: each task of a tunable job may go back to the proportional share of its GPUs, in what it holds more of.
Invariant: no job becomes slower than with its proportional share (I7), where tuning gave it what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from domain.identifiers import JobName
from domain.placement import AttemptKey, Holding
from domain.proportional_shares import ProportionalShares
from regional_scheduler.voluntary_releases import VoluntaryRelease

TunableJobs: TypeAlias = Callable[[AttemptKey], Collection[JobName]]
"""Which jobs of an attempt are tuned: what others hold they asked for."""


class AboveProportionalShare:
    """As a source of voluntary releases."""

    def __init__(self, shares: ProportionalShares, tunable_jobs: TunableJobs) -> None:
        self._shares = shares
        self._tunable_jobs = tunable_jobs

    def releases_of(self, holding: Holding) -> Iterator[VoluntaryRelease]:
        jobs = self._tunable_jobs(holding.key)
        for placement in holding.placements:
            if placement.job not in jobs or not placement.gpu_indices:
                continue
            millicpus, mebibytes = self._shares.of(placement.machine, len(placement.gpu_indices))
            if placement.millicpus > millicpus or placement.mebibytes > mebibytes:
                after = placement._replace(
                    millicpus=min(placement.millicpus, millicpus), mebibytes=min(placement.mebibytes, mebibytes)
                )
                yield VoluntaryRelease(holding.key, placement, after)
