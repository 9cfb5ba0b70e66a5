"""Remembers which jobs found no room, so that the same or larger ones are refused without planning (MAST §4.3).

Rule: a job that alone found no room in any cluster, at a standing, makes every workload fail that contains a job of
the same or larger needs (as many tasks or more, of as many GPUs, CPUs and MiB or more, on the same GPU model or on a
model where any would have done) at the same or a worse standing. Only entries that no other one covers are kept. A
stated amount of CPUs or memory is compared with a stated one only, a proportional share with a proportional share only.

Invariant: a workload that could be placed is never refused. An entry knows for how many tasks each cluster had room.
Whatever makes room adds to that what it can add at most, and an entry ends as soon as that could be enough. So there is
no need to forget everything with each scan pass, as the paper does (docs/decisions/007).

Ignores: failures of several jobs together; and that room is lost again while an entry lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from cluster_manager.capacity.machine_shapes import MOST_GPUS
from cluster_manager.capacity.task_kinds import MOST_OF_ALL, MOST_TASKS
from cluster_manager.mechanism import Query
from domain.diagnosis import known_to_fail
from domain.identifiers import ANY_GPU_MODEL, GpuModel, TenantId
from domain.rank import Standing
from domain.resources import request_mebibytes, request_millicpus
from domain.workload import JobSpecification, Workload
from regional_scheduler.queries import query_of
from regional_scheduler.refusal import Refusal
from regional_scheduler.region_capacity import RegionRelease

Kind: TypeAlias = tuple[GpuModel, bool, bool]
"""GPU model asked for, whether CPUs are the proportional share, whether memory is: only like is compared with like."""

Size: TypeAlias = tuple[int, int, int, int, int, int]
"""Tasks, GPUs, thousandths of a CPU, MiB (all of one task), priority, level: each the larger the harder to place."""


@dataclass(slots=True, eq=False)
class _Entry:
    """A job that found no room: what it asked for, and for how many tasks each cluster may have room by now."""

    job: JobSpecification
    tenant: TenantId
    standing: Standing
    size: Size
    refusal: Refusal
    room: list[int]  # [cluster]
    query: Query | None = None
    """The job as mechanisms are asked for it; made when first needed."""
    when_empty: list[int] = field(default_factory=list)
    """[cluster] How many of its tasks find room where nothing else is; filled in with the query."""


class NegativeCache:
    """What found no room, and still finds none. Hand it to `RegionCapacity.watch`, which tells it what makes room."""

    __slots__ = ("_answers", "_groups", "hits", "lookups")

    def __init__(self) -> None:
        self._groups: dict[Kind, _Group] = {}
        # What was asked before and is covered by an entry, with its refusal; emptied whenever entries end.
        self._answers: dict[tuple[Kind, Size], Refusal] = {}
        self.lookups = 0
        """Workloads asked about since this cache exists."""
        self.hits = 0
        """How many of them were refused."""

    def __len__(self) -> int:
        """How many entries there are."""
        return sum(len(group.entries) for group in self._groups.values())

    def fails(self, workload: Workload, standing: Standing) -> bool:
        """True when a job of the workload is known to find no room; False when nothing is known."""
        return self._known(workload, standing) is not None

    def why_it_fails(self, workload: Workload, standing: Standing) -> Refusal | None:
        """What was found when the same or a smaller job was refused; None when nothing is known."""
        known = self._known(workload, standing)
        if known is None:
            return None
        job, found = known
        return Refusal(known_to_fail(found.diagnosis, job.name, job.tasks), found.sentence)

    def _known(self, workload: Workload, standing: Standing) -> tuple[JobSpecification, Refusal] | None:
        """The first job of the workload that is known to find no room, and how that is known."""
        self.lookups += 1
        if self._groups:
            for job in workload.specification.jobs:
                refusal = self._covered(job, standing)
                if refusal is not None:
                    self.hits += 1
                    return job, refusal
        return None

    def remember(self, workload: Workload, standing: Standing, refusal: Refusal) -> None:
        """Keeps a refusal of `plan_workload`, if it is one of a job alone.

        What was refused while something was placed tentatively must not be remembered here but in a cache of its own,
        that ends with what was tentative.
        """
        if not refusal.room:
            return
        job = next(job for job in workload.specification.jobs if job.name == refusal.job)
        kind, size = _question(job, standing)
        if self._covered(job, standing) is None:
            group = self._groups.setdefault(kind, _Group())
            group.add(_Entry(job, workload.specification.tenant, standing, size, refusal, list(refusal.room)))

    def clear(self) -> None:
        """Everything is forgotten."""
        self._groups.clear()
        self._answers.clear()

    @property
    def listens(self) -> bool:
        """Whether it remembers anything."""
        return bool(self._groups)

    def capacity_released(self, release: RegionRelease) -> None:
        """Something was released or became evictable, or a machine came up: ends the entries that this could make wrong."""
        ended = False
        for kind in list(self._groups):
            group = self._groups[kind]
            if group.grow(release):
                ended = True
                if not group.entries:
                    del self._groups[kind]
        if ended:
            self._answers.clear()

    def _covered(self, job: JobSpecification, standing: Standing) -> Refusal | None:
        """The refusal of an entry which says that this job finds no room; None when there is none."""
        question = _question(job, standing)
        refusal = self._answers.get(question)
        if refusal is not None:
            return refusal
        kind, size = question
        for easier in _kinds_as_easy(kind):
            group = self._groups.get(easier)
            entry = group.covering(size) if group is not None else None
            if entry is not None:
                self._answers[question] = entry.refusal
                return entry.refusal
        return None


class _Group:
    """The entries of one kind, none of which covers another: few, so they are looked at one after the other."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[_Entry] = []

    def covering(self, size: Size) -> _Entry | None:
        """The first entry that is nowhere larger, at the same or a better standing."""
        return next((entry for entry in self.entries if _is_covered(size, by=entry.size)), None)

    def add(self, entry: _Entry) -> None:
        """Takes the entry in, and drops those that it covers."""
        self.entries = [old for old in self.entries if not _is_covered(old.size, by=entry.size)]
        self.entries.append(entry)

    def grow(self, release: RegionRelease) -> bool:
        """Adds what the release can add to each entry; drops those that might now find room, and says if there were any."""
        kept = [
            entry
            for entry in self.entries
            if not release.released.concerns(entry.standing) or _still_fails(entry, release)
        ]
        ended = len(kept) < len(self.entries)
        self.entries = kept
        return ended


def _is_covered(size: Size, *, by: Size) -> bool:
    """Whether whoever asks for `size` fails if whoever asks for `by` does: nowhere less, and no better standing."""
    return by[0] <= size[0] and by[1] <= size[1] and by[2] <= size[2] and by[3] <= size[3] and by[4:] <= size[4:]


def _question(job: JobSpecification, standing: Standing) -> tuple[Kind, Size]:
    """What is asked of the cache for this job. Amounts that no machine has are all alike."""
    resources = job.resources
    model = resources.gpu_model if resources.gpus > 0 else ANY_GPU_MODEL
    return (model, resources.cpus is None, resources.memory_gib is None), (
        min(job.tasks, MOST_TASKS + 1),
        min(resources.gpus, MOST_GPUS + 1),
        0 if resources.cpus is None else min(request_millicpus(resources.cpus), MOST_OF_ALL),
        0 if resources.memory_gib is None else min(request_mebibytes(resources.memory_gib), MOST_OF_ALL),
        *standing,
    )


def _kinds_as_easy(kind: Kind) -> Iterator[Kind]:
    """The kinds whose failure makes this one fail: itself, and the one that any GPU model would have done for."""
    yield kind
    if kind[0] != ANY_GPU_MODEL:
        yield ANY_GPU_MODEL, kind[1], kind[2]


def _still_fails(entry: _Entry, release: RegionRelease) -> bool:
    """Adds to the entry's room what the release can add at most; False when that might be enough in some cluster."""
    if entry.query is None:
        entry.query = query_of(release.region, entry.job, entry.tenant, entry.standing, 0.0, within_quota=False)
        entry.when_empty = release.region.when_empty(entry.query.kind, entry.job.tasks)
    position = release.position
    room = release.mechanism.capacity_after(entry.query, entry.room[position], release.released)
    entry.room[position] = min(room, entry.when_empty[position])
    return max(entry.room) < entry.job.tasks
