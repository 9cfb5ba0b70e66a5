"""What machines have free while workloads start one after the other, as a packing foresees it within one pass.

A packing scores what waits anew whenever something has started. Who knows the machines (a simulation) looks at them again;
who does not (a scan pass, whose workloads are placed by regions later) foresees where each will be: on the machine that is
left with the fewest idle GPUs, the first of equals, as in `cluster_manager.packing.best_fit`; in the region where that
leaves the fewest, of equal ones in the emptier, then the first by name.

Machines that have equally much free are looked at together: a fleet has few different amounts.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.tables import GPUS, MEBIBYTES, MILLICPUS, Integers, Reals
from cluster_manager.tuning.packing_demands import PackingDemands
from domain.identifiers import ANY_GPU_MODEL, ClusterId, GpuModel, RegionId


class FreeMachine(NamedTuple):
    """What a machine that takes work has free. Amounts are less than nothing where victims have yet to leave."""

    region: RegionId
    cluster: ClusterId
    gpu_model: GpuModel
    gpus: int
    millicpus: int
    mebibytes: int


class PackedJob(NamedTuple):
    """Tasks that are placed together in one cluster."""

    asked: Reals
    """[GPUs | thousandths of a CPU | MiB] by each task."""
    tasks: int
    gpu_model: GpuModel


class PackedKind(NamedTuple):
    """What workloads ask for that ask for the same in the same regions."""

    jobs: tuple[PackedJob, ...]
    regions: frozenset[RegionId]


class _Alignment(NamedTuple):
    """The greatest of a kind, and the amounts that it has it with."""

    value: float
    row: int


@dataclass(slots=True)
class _Place:
    """Where a job would be: so many tasks on machines of these amounts, and how many GPUs stay idle on those."""

    machines: int
    idle_gpus: float
    rows: list[tuple[int, int]]


class PredictedRoom:
    """What is free in one pass; `take` takes of it."""

    def __init__(
        self,
        demands: PackingDemands,
        kinds: Mapping[Hashable, PackedKind],
        free: Sequence[FreeMachine],
        gpus: Mapping[RegionId, int],
    ) -> None:
        """`free` are all machines that take work, in the order in which regions take equal ones; `gpus` are all of a region."""
        self._demands = demands
        self._gpus = gpus
        self._kinds = kinds
        self._clusters: list[tuple[RegionId, ClusterId]] = list(dict.fromkeys([(m.region, m.cluster) for m in free]))
        self._models: list[GpuModel] = sorted({m.gpu_model for m in free})
        self._row_of: dict[tuple[int, ...], int] = {}
        self._amounts: Integers = np.zeros((16, 3), np.int64)
        self._cluster: Integers = np.zeros(16, np.int64)
        self._model: Integers = np.zeros(16, np.int64)
        self._count: Integers = np.zeros(16, np.int64)
        self._machines: list[list[int]] = []
        """By row: the places in `free` of the machines that have just this, a heap."""
        self._alignments: dict[Hashable, _Alignment | None] = {}
        self._refused: set[Hashable] = set()
        clusters = {name: position for position, name in enumerate(self._clusters)}
        models = {name: position for position, name in enumerate(self._models)}
        for place, machine in enumerate(free):
            key = (clusters[machine.region, machine.cluster], models[machine.gpu_model], *machine[3:])
            self._add(key, place)

    def alignment(self, kind: Hashable) -> float | None:
        """The greatest inner product of what a task of the first job asks for and what is free on a machine that has it,
        both in parts of the largest machine (Tetris §3.1); None: no region has room for the whole."""
        if kind in self._refused:
            return None
        known = self._alignments.get(kind)
        # Room is only ever taken, so what was best stays so while any machine still has it.
        if known is None or self._count[known.row] == 0:
            known = self._alignments[kind] = self._best_alignment(self._kinds[kind])
        if known is None or (_is_gang(self._kinds[kind]) and not self._regions_with_room(self._kinds[kind])):
            self._refused.add(kind)
            return None
        return known.value

    def take(self, kind: Hashable) -> None:
        """A workload of the kind starts, where it finds room; else it takes nothing."""
        found = self._regions_with_room(self._kinds[kind])
        if not found:
            self._refused.add(kind)
            return
        loads = self._load_by_region() if len(found) > 1 else {}
        region = min(found, key=lambda name: (_score(found[name]), loads.get(name, 0.0), name))
        for job in self._kinds[kind].jobs:
            # Anew, for what the jobs before it have taken; of several jobs the last may find less than it would alone.
            place = self._place_in(job, region)
            for row, tasks in [] if place is None else place.rows:
                self._charge(row, tasks * job.asked)

    def _best_alignment(self, kind: PackedKind) -> _Alignment | None:
        job = kind.jobs[0]
        rows = np.flatnonzero(self._suits(job, kind.regions) & (self._room(job) > 0))
        if not len(rows):
            return None
        values = self._demands.alignments(job.asked, self._amounts[rows])
        best = int(np.argmax(values))
        return _Alignment(float(values[best]), int(rows[best]))

    def _regions_with_room(self, kind: PackedKind) -> dict[RegionId, list[_Place]]:
        """Where every job of the kind would be, each beside what is free now."""
        found: dict[RegionId, list[_Place]] = {}
        for region in sorted(kind.regions):
            places = []
            for job in kind.jobs:
                place = self._place_in(job, region)
                if place is None:
                    break
                places.append(place)
            else:
                found[region] = places
        return found

    def _place_in(self, job: PackedJob, region: RegionId) -> _Place | None:
        """In the cluster of the region where the tasks are on the fewest machines, and leave the fewest idle GPUs there."""
        suits, room = self._suits(job, frozenset({region})), self._room(job)
        best: _Place | None = None
        for position, (here, _) in enumerate(self._clusters):
            if here != region:
                continue
            rows = np.flatnonzero(suits & (self._cluster == position) & (room > 0))
            place = self._tightest(job, rows, room)
            if place is not None and (best is None or _score([place]) < _score([best])):
                best = place
        return best

    def _tightest(self, job: PackedJob, rows: Integers, room: Integers) -> _Place | None:
        """One machine if one will do, else those with the most room first and the tightest for what is left."""
        if (room[rows] * self._count[rows]).sum() < job.tasks:
            return None
        left, chosen, idle_gpus = job.tasks, list[tuple[int, int]](), 0.0
        by_room = sorted(rows.tolist(), key=lambda row: (-room[row], self._amounts[row, GPUS], self._machines[row][0]))
        there = {row: int(self._count[row]) for row in by_room}
        while left:
            enough = [row for row in by_room if there[row] and room[row] >= left]
            if enough:
                row = min(enough, key=lambda row: (self._amounts[row, GPUS], self._machines[row][0]))
            else:
                row = next(row for row in by_room if there[row])
            tasks = min(left, int(room[row]))
            there[row] -= 1
            chosen.append((row, tasks))
            idle_gpus += float(self._amounts[row, GPUS]) - tasks * float(job.asked[GPUS])
            left -= tasks
        return _Place(len(chosen), idle_gpus, chosen)

    def _suits(self, job: PackedJob, regions: frozenset[RegionId]) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """[row] whether any machine has this, is in the regions and has GPUs of the job's model."""
        here = np.array([region in regions for region, _ in self._clusters], np.bool_)
        model = job.asked[GPUS] == 0 or job.gpu_model == ANY_GPU_MODEL
        models = np.array([model or name == job.gpu_model for name in self._models], np.bool_)
        suits: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            (self._count > 0) & here[self._cluster] & models[self._model] if len(here) else self._count > 0
        )
        return suits

    def _room(self, job: PackedJob) -> Integers:
        """[row] how many of the job's tasks a machine has room for."""
        asked = job.asked > 0
        if not asked.any():
            return np.full(len(self._amounts), job.tasks, np.int64)
        tasks = (self._amounts[:, asked] // job.asked[asked]).min(axis=1)
        clipped: Integers = np.clip(tasks, 0, job.tasks).astype(np.int64)
        return clipped

    def _load_by_region(self) -> dict[RegionId, float]:
        """The share of each region's GPUs that is in use."""
        idle: dict[RegionId, float] = {}
        gpus = np.maximum(self._amounts[:, GPUS], 0) * self._count
        for position, (region, _) in enumerate(self._clusters):
            idle[region] = idle.get(region, 0.0) + float(gpus[self._cluster == position].sum())
        return {region: 1.0 - there / max(1, self._gpus.get(region, 0)) for region, there in idle.items()}

    def _charge(self, row: int, amounts: Reals) -> None:
        """One machine of the row has that much less."""
        place = heapq.heappop(self._machines[row])
        self._count[row] -= 1
        left = self._amounts[row] - np.ceil(amounts).astype(np.int64)
        key = (
            int(self._cluster[row]),
            int(self._model[row]),
            int(left[GPUS]),
            int(left[MILLICPUS]),
            int(left[MEBIBYTES]),
        )
        self._add(key, place)

    def _add(self, key: tuple[int, ...], place: int) -> None:
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self._row_of)
            if row == len(self._count):
                self._amounts = np.concatenate([self._amounts, np.zeros_like(self._amounts)])
                self._cluster, self._model, self._count = (
                    np.concatenate([column, np.zeros_like(column)])
                    for column in (self._cluster, self._model, self._count)
                )
            self._cluster[row], self._model[row], self._amounts[row] = key[0], key[1], key[2:]
            self._machines.append([])
        heapq.heappush(self._machines[row], place)
        self._count[row] += 1


def _is_gang(kind: PackedKind) -> bool:
    """Whether a machine that has room for a task may not be enough."""
    return len(kind.jobs) > 1 or kind.jobs[0].tasks > 1


def _score(places: Sequence[_Place]) -> tuple[int, float]:
    """The smaller, the better: machines, then GPUs left idle on them (fields of `domain.placement.Score`)."""
    return sum(place.machines for place in places), sum(place.idle_gpus for place in places)
