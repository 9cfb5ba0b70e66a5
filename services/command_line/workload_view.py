"""Workloads as people want to see them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from services.command_line.output import TextTable
from services.command_line.wording import counted, duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topmast import Attempt, Diagnosis, JobSpecification, TableInput, Workload


def list_table(workloads: Iterable[Workload]) -> TextTable:
    """One row each."""
    return TextTable(
        "Workloads",
        ("workload", "name", "tenant", "state", "region", "gpus", "submitted", "reason"),
        [
            (
                workload.workload,
                workload.name,
                workload.tenant,
                workload.state.value,
                workload.region,
                str(gpus_of(workload)),
                moment(workload.submitted_s),
                workload.reason,
            )
            for workload in workloads
        ],
        right=frozenset({5}),
    )


def gpus_of(workload: Workload) -> int:
    """GPUs of all base tasks."""
    return sum(job.tasks * job.gpus for job in workload.specification.jobs)


def details_table(workload: Workload) -> TextTable:
    """Everything about it but its attempts."""
    rows = [
        ("workload", workload.workload),
        ("name", workload.name),
        ("tenant", workload.tenant),
        ("state", workload.state.value + (", to be cancelled" if workload.cancel_requested else "")),
        ("reason", workload.reason),
        ("submitted", moment(workload.submitted_s)),
        ("ended", moment(workload.ended_s)),
        ("region", workload.region),
        ("queue", queue_words(workload)),
        ("diagnosis", diagnosis_words(workload.queue_position.diagnosis) if workload.queue_position else ""),
        ("progress", progress_words(workload)),
        ("failures", str(workload.failures) if workload.failures else ""),
        *((f"job {job.name}", job_words(job)) for job in workload.specification.jobs),
        *((f"place of {one.job}", one.sentence) for one in workload.consolidations),
        ("tables", ", ".join(_table(table) for table in workload.specification.tables)),
        ("regions", ", ".join(workload.specification.regions)),
        ("labels", ", ".join(f"{key}={value}" for key, value in workload.specification.labels.items())),
    ]
    return TextTable("", ("field", "value"), [row for row in rows if row[1]])


def job_words(job: JobSpecification) -> str:
    """Its tasks, what each asks for, and what it runs."""
    tasks = counted(job.tasks, "task") if job.max_tasks <= job.tasks else f"{job.tasks} to {job.max_tasks} tasks"
    asked = []
    if job.gpus:
        model = "" if job.gpu_model in {"", "any"} else f"{job.gpu_model} "
        asked.append(counted(job.gpus, f"{model}GPU"))
    if job.cpus is not None:
        asked.append(f"{number(job.cpus)} CPUs")
    if job.memory_gib is not None:
        asked.append(f"{number(job.memory_gib)} GiB")
    if job.emulated is not None:
        runs = f"emulated for {duration(job.emulated.duration_s)}"
    else:
        runs = " ".join(job.command) or job.python
    return f"{tasks} of {', '.join(asked) or 'nothing'}: {runs}"


def queue_words(workload: Workload) -> str:
    """Its place in the queue; "" when it is in none."""
    position = workload.queue_position
    if position is None:
        return ""
    place = f"rank {position.rank:,}" if position.rank else "not ranked yet"
    quota = "within" if position.within_quota else "over"
    words = f"{place}, priority {position.priority}, level {position.level}, {quota} quota"
    return f"{words}; {position.reason}" if position.reason else words


def diagnosis_words(diagnosis: Diagnosis | None) -> str:
    """no_room: 3 of 8 tasks in east/e1, job train, since 12:00; "" without one."""
    if diagnosis is None:
        return ""
    parts = [f"{number(found.available)} of {number(found.asked)} {found.quantity}" for found in diagnosis.numbers]
    place = "/".join(name for name in (diagnosis.region, diagnosis.cluster) if name)
    if place:
        parts.append(f"in {place}")
    if diagnosis.job:
        parts.append(f"job {diagnosis.job}")
    if diagnosis.field:
        parts.append(diagnosis.field)
    if diagnosis.cells_owned:
        parts.append(f"asks for {diagnosis.cells_asked}, owns {diagnosis.cells_owned}")
    if diagnosis.tables:
        parts.append(f"without {' '.join(diagnosis.tables)}")
    if diagnosis.since_s is not None:
        parts.append(f"since {moment(diagnosis.since_s)}")
    return f"{diagnosis.reason}: {', '.join(parts)}" if parts else diagnosis.reason


def progress_words(workload: Workload) -> str:
    """Progress, checkpoint and throughput in the workload's own unit; "" before the first step."""
    if not workload.progress:
        return ""
    unit = "s of work" if is_emulated(workload) else "steps"
    words = f"{number(workload.progress)} {unit}, saved at {number(workload.checkpoint_progress)}"
    return f"{words}, {number(workload.throughput)} per second" if workload.throughput else words


def is_emulated(workload: Workload) -> bool:
    return all(job.emulated is not None for job in workload.specification.jobs)


def attempts_table(attempts: Iterable[Attempt]) -> TextTable:
    """One row per run."""
    return TextTable(
        "Attempts",
        ("attempt", "region", "clusters", "machines", "guaranteed", "started", "ran", "end", "from", "to", "reason"),
        [
            (
                str(attempt.attempt),
                attempt.region,
                ",".join(attempt.clusters),
                str(len({placement.machine for placement in attempt.placements})),
                "yes" if attempt.guaranteed else "no",
                moment(attempt.started_s),
                duration(attempt.ended_s - attempt.started_s) if attempt.started_s and attempt.ended_s else "",
                attempt.end,
                number(attempt.progress_at_start),
                number(attempt.progress),
                attempt.end_reason,
            )
            for attempt in attempts
        ],
        right=frozenset({0, 3, 8, 9}),
    )


def placements_table(attempt: Attempt) -> TextTable:
    """Where the tasks of an attempt are."""
    return TextTable(
        f"Placement of attempt {attempt.attempt}",
        ("job", "task", "cluster", "machine", "gpus", "cpus", "memory"),
        [
            (
                placement.job,
                str(placement.task),
                placement.cluster,
                placement.machine,
                ",".join(map(str, placement.gpu_indices)),
                number(placement.cpus),
                f"{number(placement.memory_gib)} GiB",
            )
            for placement in attempt.placements
        ],
        right=frozenset({1, 5, 6}),
    )


def tunings_table(attempt: Attempt) -> TextTable:
    """What its jobs hold of CPUs and memory, and with which profile they are tuned."""
    return TextTable(
        f"CPUs and memory of attempt {attempt.attempt}, for each GPU",
        ("job", "cpus", "share", "memory", "share", "speed", "tuning", "profile"),
        [
            (
                tuning.job,
                number(tuning.cpus_per_gpu),
                number(tuning.share_cpus_per_gpu),
                f"{number(tuning.memory_gib_per_gpu)} GiB",
                f"{number(tuning.share_memory_gib_per_gpu)} GiB",
                f"{tuning.speed:.2f}",
                tuning.tuning or "none",
                tuning.profile or "none",
            )
            for tuning in attempt.tunings
        ],
        right=frozenset({1, 2, 3, 4, 5}),
    )


def cells_table(attempt: Attempt) -> TextTable:
    """The cells of a virtual cluster that its jobs use."""
    return TextTable(
        f"Cells of attempt {attempt.attempt}",
        ("job", "virtual cluster", "hierarchy", "cells", "pinned", "state"),
        [
            (
                cells.job,
                cells.virtual_cluster,
                cells.hierarchy,
                ", ".join(f"{count} in {level}" for level, count in sorted(Counter(cells.levels).items())),
                cells.pinned_cell,
                "downgraded" if cells.downgraded else "guaranteed",
            )
            for cells in attempt.cells
        ],
    )


def change_line(workload: Workload) -> str:
    """What there is to know about it now, in one line."""
    words = [workload.workload, workload.state.value]
    if workload.region:
        words.append(f"in {workload.region}")
    if workload.attempts:
        words.append(f"attempt {workload.attempts[-1].attempt}")
    parts = [
        " ".join(words),
        progress_words(workload),
        queue_words(workload) if not workload.region or workload.state == "PENDING" else "",
        workload.reason,
    ]
    return "; ".join(part for part in parts if part)


def count_by_state(workloads: Iterable[Workload]) -> str:
    """3 COMPLETED, 1 FAILED."""
    counts = Counter(workload.state.value for workload in workloads)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _table(table: TableInput) -> str:
    said = ["fresh"] * table.fresh
    if table.max_age_s is not None:
        said.append(f"at most {duration(table.max_age_s)} behind")
    if table.newest_partitions is not None:
        said.append(f"newest {table.newest_partitions} partitions")
    return table.table + (f" ({', '.join(said)})" if said else "")
