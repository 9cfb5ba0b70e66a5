"""Which copies beside the homes whoever asks for a plan may choose, by the names of regions (MAST §3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from data_placement.replicas import ReplicaPolicy
from domain.warehouse import Floats, Regions
from formats.problems import FieldProblem, FormatError, suggestion


class CorrelatedFailure(NamedTuple):
    """How likely the other region fails when the first does; also the other way round, where nothing else is said of that."""

    region: str
    other: str
    probability: float


class SpareShare(NamedTuple):
    """The part of its GPU hours that a region keeps for the jobs of one that fails."""

    region: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyChoices:
    """What is chosen; a region of which nothing is said is as the warehouse has it."""

    replicas: bool = True
    """False: no copies at all."""
    disaster_copies: bool = True
    spare_hardware: bool = True
    """Copies against disasters go where GPUs are to spare."""
    hot_storage_share: float = ReplicaPolicy().hot_storage_share
    """Of the storage that is left, for copies of hot tables."""
    partition_copies: bool = False
    """Copies for jobs hold only the newest partitions, as many as the jobs read."""
    correlated_failures: tuple[CorrelatedFailure, ...] = ()
    spare_gpu_shares: tuple[SpareShare, ...] = ()

    def policy(self, regions: Regions) -> ReplicaPolicy:
        """The policy for these regions. Raises FormatError, naming the field, for a region that is not there."""
        problems = self._unknown(regions)
        if problems:
            raise FormatError("the plan's settings", problems)
        if not self.replicas:
            return ReplicaPolicy(False, False, 0.0)
        return ReplicaPolicy(
            against_disasters=self.disaster_copies,
            hot_storage_share=self.hot_storage_share,
            correlated_failures=self._failures(regions),
            partitions=self.partition_copies,
            spare_hardware=self.spare_hardware,
            spare_gpu_share=self._spare(regions),
        )

    def _unknown(self, regions: Regions) -> list[FieldProblem]:
        named = [
            (f"correlated_failures[{place}].{field}", name)
            for place, failure in enumerate(self.correlated_failures)
            for field, name in (("region", failure.region), ("other", failure.other))
        ] + [(f"spare_gpu_shares[{place}].region", spare.region) for place, spare in enumerate(self.spare_gpu_shares)]
        return [
            FieldProblem(field, f"there is no region {name}; {suggestion(name, regions.names, 'region')}")
            for field, name in named
            if name not in regions.names
        ]

    def _failures(self, regions: Regions) -> Floats | None:
        if not self.correlated_failures:
            return regions.correlated_failures
        known = regions.correlated_failures
        found = np.zeros((regions.count, regions.count)) if known is None else known.copy()
        place = {name: index for index, name in enumerate(regions.names)}
        for region, other, probability in self.correlated_failures:
            found[place[other], place[region]] = probability
        # What is said of a pair comes before what follows from its reverse.
        for region, other, probability in self.correlated_failures:
            found[place[region], place[other]] = probability
        return found

    def _spare(self, regions: Regions) -> Floats | None:
        if not self.spare_gpu_shares:
            return regions.spare_gpu_share
        known = regions.spare_gpu_share
        found = np.full(regions.count, np.nan) if known is None else known.copy()
        for region, share in self.spare_gpu_shares:
            found[regions.names.index(region)] = share
        return found


def problems_of(choices: CopyChoices) -> list[str]:
    """What makes no sense, one sentence each, that begins with the field."""
    found = [
        f"correlated_failures[{place}].probability must be between 0 and 1, not {failure.probability:g}"
        for place, failure in enumerate(choices.correlated_failures)
        if not 0.0 <= failure.probability <= 1.0
    ]
    found += [
        f"correlated_failures[{place}].other is the same region, {failure.other}; name two"
        for place, failure in enumerate(choices.correlated_failures)
        if failure.region == failure.other
    ]
    found += _repeated("correlated_failures", [(each.region, each.other) for each in choices.correlated_failures])
    found += [
        f"spare_gpu_shares[{place}].share must be between 0 and 1, not {spare.share:g}"
        for place, spare in enumerate(choices.spare_gpu_shares)
        if not 0.0 <= spare.share <= 1.0
    ]
    found += _repeated("spare_gpu_shares", [(each.region,) for each in choices.spare_gpu_shares])
    if not 0.0 <= choices.hot_storage_share <= 1.0:
        found.append(f"hot_storage_share must be between 0 and 1, not {choices.hot_storage_share:g}")
    return found


def _repeated(field: str, keys: Sequence[tuple[str, ...]]) -> list[str]:
    return [
        f"{field}[{place}].region comes again ({', '.join(key)}); say it once"
        for place, key in enumerate(keys)
        if key in keys[:place]
    ]
