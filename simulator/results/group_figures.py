"""The same few figures for parts of a run: per tenant, per priority, per region, per number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from domain.events import JsonValue
from simulator.results.distribution import Distribution, distribution_of, number_or_null
from simulator.results.grouping import positions_by_group, sums_by_group
from simulator.results.run_record import AttemptEnd, Flags, Integers, Reals, RunRecord, WorkloadEnd
from simulator.results.waits import Waits
from simulator.results.work import AttemptWork


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Figures of some of the workloads of a run."""

    workloads: int
    completed: int
    unfinished: int
    jct_s: Distribution
    queueing_s: Distribution
    gpu_s: float
    """GPU-seconds held."""
    guaranteed_gpu_s: float
    """Of these, by attempts that were sure of their GPUs."""
    preemptions: int
    preempted_gpus: int
    """GPUs that the preempted attempts were dispatched with, added up."""
    preempted_gpu_s: float
    lost_work_gpu_s: float
    slo_violation_rate: float
    """Of the waits that can be judged; not a number when there are none."""

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "workloads": self.workloads,
            "completed": self.completed,
            "unfinished": self.unfinished,
            "jct_s": self.jct_s.as_json(),
            "queueing_s": self.queueing_s.as_json(),
            "gpu_s": self.gpu_s,
            "guaranteed_gpu_s": self.guaranteed_gpu_s,
            "preemptions": self.preemptions,
            "preempted_gpus": self.preempted_gpus,
            "preempted_gpu_s": self.preempted_gpu_s,
            "lost_work_gpu_s": self.lost_work_gpu_s,
            "slo_violation_rate": number_or_null(self.slo_violation_rate),
        }


@dataclass(frozen=True, slots=True, eq=False)
class RunRows:
    """What has been worked out about every workload, attempt and wait of a run."""

    jct_s: Reals
    """Of workloads; not a number for those that have not completed."""
    queueing_s: Reals
    held_gpu_s: Reals
    """Of attempts."""
    work: AttemptWork
    waits: Waits
    judged: Flags
    """Of waits."""
    violated: Flags


def figures_by_group(
    record: RunRecord,
    rows: RunRows,
    names: Sequence[str],
    group_of_workload: Integers,
    group_of_attempt: Integers,
    group_of_wait: Integers,
) -> dict[str, GroupFigures]:
    """By name, in the order of the names; groups that nothing belongs to are left out."""
    completed = record.workloads.end == WorkloadEnd.COMPLETED
    unfinished = (record.workloads.end == WorkloadEnd.QUEUED) | (record.workloads.end == WorkloadEnd.RUNNING)
    preempted = record.attempts.end == AttemptEnd.PREEMPTED

    groups = len(names)
    held = sums_by_group(group_of_attempt, rows.held_gpu_s, groups)
    attempts = record.attempts
    guaranteed = sums_by_group(group_of_attempt, np.where(attempts.guaranteed, rows.held_gpu_s, 0.0), groups)
    preemptions = sums_by_group(group_of_attempt, preempted, groups)
    preempted_gpus = sums_by_group(group_of_attempt, np.where(preempted, attempts.gpus, 0), groups)
    preempted_gpu_s = sums_by_group(group_of_attempt, np.where(preempted, rows.held_gpu_s, 0.0), groups)
    lost = sums_by_group(group_of_attempt, rows.work.lost, groups)
    judged = sums_by_group(group_of_wait, rows.judged, groups)
    violated = sums_by_group(group_of_wait, rows.judged & rows.violated, groups)
    rates = np.divide(violated, judged, out=np.full(groups, np.nan), where=judged > 0)

    figures: dict[str, GroupFigures] = {}
    for group, members in enumerate(positions_by_group(group_of_workload, groups)):
        if not len(members) and not held[group] and not judged[group]:
            continue
        done = members[completed[members]]
        figures[names[group]] = GroupFigures(
            workloads=len(members),
            completed=len(done),
            unfinished=int(unfinished[members].sum()),
            jct_s=distribution_of(rows.jct_s[done]),
            queueing_s=distribution_of(rows.queueing_s[done]),
            gpu_s=float(held[group]),
            guaranteed_gpu_s=float(guaranteed[group]),
            preemptions=int(preemptions[group]),
            preempted_gpus=int(preempted_gpus[group]),
            preempted_gpu_s=float(preempted_gpu_s[group]),
            lost_work_gpu_s=float(lost[group]),
            slo_violation_rate=float(rates[group]),
        )
    return figures


def gpu_classes(gpus: Integers) -> tuple[tuple[str, ...], Integers]:
    """Names of the classes by number of GPUs (0, 1, 2, 3-4, 5-8, ...: up to the next power of two), and each one's."""
    classes = np.where(gpus > 0, 1 + np.ceil(np.log2(np.maximum(gpus, 1))).astype(np.int64), 0)
    count = int(classes.max()) + 1 if len(classes) else 0
    names = ["0", "1", "2", *(f"{2 ** (power - 1) + 1}-{2**power}" for power in range(2, count))]
    return tuple(names[: max(count, 3)]), classes
