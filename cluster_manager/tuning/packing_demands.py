"""What workloads ask for beside what there is, and the scores by which packings choose the next one (Synergy §5.7).

The dominant share is that of DRF (Ghodsi et al., NSDI 2011, §4.1), alignment and score are those of Tetris (Grandl et al.,
SIGCOMM 2014, §3). Simulations ask at every start, a service at every scan pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from cluster_manager.capacity.tables import RESOURCES, Integers, Reals
from domain.fleet import Machine
from domain.resources import request_mebibytes, request_millicpus
from domain.workload import JobSpecification, WorkloadSpecification

NOT_ALIGNED = -1.0
"""In place of an alignment, where no machine has what is asked for: worse than any."""

_NO_WORK = 1e-9
"""Less than this weighs nothing: quotients stay finite."""


class PackingDemands:
    """Compares with these machines. Amounts are [GPUs | thousandths of a CPU | MiB]."""

    def __init__(self, machines: Iterable[Machine]) -> None:
        amounts = np.array([(m.gpus, m.cpus * 1000, m.memory_gib * 1024) for m in machines], np.float64).reshape(-1, 3)
        self._total: Reals = np.maximum(amounts.sum(axis=0), 1.0)
        self._largest: Reals = np.maximum(amounts.max(axis=0, initial=0.0), 1.0)

    def dominant_share(self, specification: WorkloadSpecification) -> float:
        """The largest part that it asks for of all GPUs, CPUs or memory."""
        return float((self._all_tasks(specification) / self._total).max())

    def size(self, specification: WorkloadSpecification) -> float:
        """What it asks for in parts of the largest machine, all resources together."""
        return float((self._all_tasks(specification) / self._largest).sum())

    def alignment(self, asked: Reals, free: Integers) -> float | None:
        """The greatest inner product of what a task asks for and what is free on a machine that has it, both in parts of
        the largest machine; None: no machine has it. `free` is [machine, amount], of machines that take work."""
        fits = (free >= asked).all(axis=1)
        if not fits.any():
            return None
        return float(self.alignments(asked, free[fits]).max())

    def alignments(self, asked: Reals, free: Integers) -> Reals:
        """[machine] the inner products. Each is the same number whatever other machines there are."""
        parts = (free / self._largest) * (asked / self._largest)
        summed: Reals = parts[:, 0] + parts[:, 1] + parts[:, 2]
        return summed

    def asked(self, job: JobSpecification) -> Reals:
        """What a task asks for; what it leaves open is its GPUs' part of all that there is."""
        resources = job.resources
        share = self._total * (resources.gpus / self._total[0])
        return np.array(
            [
                resources.gpus,
                share[1] if resources.cpus is None else request_millicpus(resources.cpus),
                share[2] if resources.memory_gib is None else request_mebibytes(resources.memory_gib),
            ]
        )

    def _all_tasks(self, specification: WorkloadSpecification) -> Reals:
        return sum((job.tasks * self.asked(job) for job in specification.jobs), np.zeros(RESOURCES))


def packing_scores(aligned: Sequence[float | None], work_left: Sequence[float]) -> list[float]:
    """The scores of workloads, the greatest is next: alignment less remaining work, weighed so that both count alike on
    average over those that a machine has room for. `work_left` are seconds times size."""
    known = [pair for pair in zip(aligned, work_left, strict=True) if pair[0] is not None]
    usual_alignment = sum(alignment for alignment, _ in known if alignment is not None) / max(len(known), 1)
    usual_work = sum(left for _, left in known) / max(len(known), 1)
    weight = usual_alignment / usual_work if usual_work > _NO_WORK else 0.0
    return [
        (NOT_ALIGNED if alignment is None else alignment) - weight * left
        for alignment, left in zip(aligned, work_left, strict=True)
    ]


def place_of_next(aligned: Sequence[float | None], work_left: Sequence[float]) -> int:
    """Which of those that wait starts next: the one of the greatest score, of equals the first. There must be one."""
    scores = packing_scores(aligned, work_left)
    return max(range(len(scores)), key=scores.__getitem__)
