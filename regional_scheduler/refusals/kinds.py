"""Kinds of workloads, and which of them are known to find nothing: these need not be asked again, one by one.

Rule: where a workload found no place, none of its kind on the same side of the quota finds one, at this standing or a worse
one, until capacity is released that could be enough. So a walk along the queue asks the first of a kind and passes over
the others, in the service and in a simulation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Generic, NewType, TypeVar

from domain.rank import Standing
from domain.workload import WorkloadSpecification

WorkloadKind = NewType("WorkloadKind", str)
"""What a workload asks for and where it may run, as one word: 32 hexadecimal digits."""

Kind = TypeVar("Kind", bound=Hashable)


def kind_of(specification: WorkloadSpecification) -> WorkloadKind:
    """The same for all workloads that ask for the same, in the same places; of whatever tenant.

    Nothing that says how a place is preferred to another is in it: only what decides whether there is one.
    """
    jobs = [(job.name, job.tasks, job.resources, job.affinity, job.profile) for job in specification.jobs]
    split = [job.name for job in specification.jobs if job.across_clusters]
    said = repr((jobs, specification.regions, specification.tables, *([split] if split else ())))
    return WorkloadKind(hashlib.sha256(said.encode()).hexdigest()[:32])


class HopelessKinds(Generic[Kind]):
    """By kind, the best standing that is known to find nothing. Whoever keeps it forgets what may have become wrong."""

    __slots__ = ("_standings",)

    def __init__(self) -> None:
        self._standings: dict[Kind, Standing] = {}

    def __len__(self) -> int:
        return len(self._standings)

    def finds_nothing(self, kind: Kind, standing: Standing) -> bool:
        """Whether one of this kind that stands so is known to find nothing."""
        known = self._standings.get(kind)
        return known is not None and known <= standing

    def learn(self, kind: Kind, standing: Standing) -> None:
        """One of this kind that stands so has found nothing."""
        known = self._standings.get(kind)
        if known is None or standing < known:
            self._standings[kind] = standing

    def clear(self) -> None:
        """Forgets all of them."""
        self._standings.clear()
