"""Workloads as people want to see them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from domain.time_limit import exact_duration
from services.command_line.table_fit import TextTable
from services.command_line.waiting_view import diagnosis_words, waiting_words
from services.command_line.wording import counted, duration, moment, number

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topmast import Attempt, AwaitedWorkload, JobSpecification, NotificationStatus, TableInput, Workload


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
                workload.reason if workload.waits_for else waiting_words(workload.queue_position, workload.reason),
            )
            for workload in workloads
        ],
        right=frozenset({5}),
        prose=frozenset({7}),
        least=(6, 5, 4, 2, 1),
    )


def gpus_of(workload: Workload) -> int:
    """GPUs of all base tasks."""
    return sum(job.tasks * job.gpus for job in workload.specification.jobs)


def details_table(workload: Workload) -> TextTable:
    """Everything about it but its attempts, and what each region says of it."""
    diagnosis = workload.queue_position.diagnosis if workload.queue_position is not None else None
    rows = [
        ("workload", workload.workload),
        ("name", workload.name),
        ("tenant", workload.tenant),
        ("array", _array_words(workload)),
        ("failed", _failed_words(workload)),
        ("state", _state_words(workload)),
        ("reason", workload.reason if diagnosis is None or workload.held_by else ""),
        ("submitted", moment(workload.submitted_s)),
        ("ended", moment(workload.ended_s)),
        ("region", workload.region),
        ("queue", queue_words(workload)),
        *(("after", _awaited(one)) for one in workload.waits_for),
        ("waits", "" if workload.region_diagnoses else diagnosis_words(diagnosis)),
        ("progress", progress_words(workload)),
        ("failures", str(workload.failures) if workload.failures else ""),
        *((f"job {job.name}", job_words(job)) for job in workload.specification.jobs),
        *((f"place of {one.job}", one.sentence) for one in workload.consolidations),
        *(("note", remark) for remark in workload.remarks),
        ("tables", ", ".join(_table(table) for table in workload.specification.tables)),
        ("regions", ", ".join(workload.specification.regions)),
        ("time limit", _time_limit(workload)),
        ("class", workload.specification.priority_class),
        ("notification", notification_words(workload.notification)),
        ("labels", ", ".join(f"{key}={value}" for key, value in workload.specification.labels.items())),
    ]
    return TextTable("", ("field", "value"), [row for row in rows if row[1]], prose=frozenset({1}))


def _array_words(workload: Workload) -> str:
    """What is in the array, or which element this is; "" for what is neither."""
    elements = workload.elements
    if elements is None:
        return f"element {workload.array_index} of {workload.array}" if workload.array else ""
    words = workload.specification.array
    if elements.awaiting_turn:
        words += f"; {counted(elements.awaiting_turn, 'element')} not in the queue before others have ended"
    return words


def _failed_words(workload: Workload) -> str:
    """The elements that failed, for `topmast get`."""
    if workload.elements is None or not workload.elements.failed:
        return ""
    more = workload.elements.states.get(workload.state.FAILED, 0) - len(workload.elements.failed)
    named = ", ".join(map(str, workload.elements.failed))
    return f"elements {named}" + (f" and {more:,} more" if more > 0 else "")


def _state_words(workload: Workload) -> str:
    return workload.state.value + ("" if workload.state.ended else _about_to_be(workload))


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
    """Its place in the queue, and why it is there where no region has said more; "" when it is in none."""
    position = workload.queue_position
    if position is None or workload.held_by or workload.waits_for:
        return ""
    place = f"rank {position.rank:,}" if position.rank else "not ranked yet"
    if position.rank is None and position.next_try_s is None:
        # It has no standing before the first scan pass has seen it.
        return f"{place}; {position.reason}" if position.reason and place not in position.reason else place
    quota = "within" if position.within_quota else "over"
    words = f"{place}, priority {position.priority}, level {position.level}, {quota} quota"
    if position.next_try_s is not None:
        return f"{words}; failed {counted(workload.failures, 'time')}, next try at {moment(position.next_try_s)}"
    # What the regions say is told once, in a table of its own: what is left is why it is within or over its quota.
    why = position.reason if position.diagnosis is None else position.reason.removeprefix(workload.reason).strip(" ()")
    return f"{words}; {why}" if why else words


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
                _why_it_ended(attempt),
            )
            for attempt in attempts
        ],
        right=frozenset({0, 3, 8, 9}),
        prose=frozenset({10}),
        least=(4, 8, 9, 3, 6, 2, 5),
    )


def _why_it_ended(attempt: Attempt) -> str:
    """Or for whom it has to leave."""
    words = [f"by {attempt.preempted_by.words}"] if attempt.preempted_by is not None else []
    return "; ".join([*words, *([attempt.end_reason] if attempt.end_reason else [])])


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
        least=(5, 6, 2),
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
        least=(7, 6),
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
    diagnosis = workload.queue_position.diagnosis if workload.queue_position is not None else None
    parts = [
        " ".join(words),
        progress_words(workload),
        queue_words(workload) if not workload.region or workload.state == "PENDING" else "",
        diagnosis_words(diagnosis) or workload.reason,
    ]
    return "; ".join(part for part in parts if part)


def count_by_state(workloads: Iterable[Workload]) -> str:
    """3 COMPLETED, 1 FAILED."""
    counts = Counter(workload.state.value for workload in workloads)
    return ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))


def _about_to_be(workload: Workload) -> str:
    """What its user has asked for that has not happened yet."""
    if workload.cancel_requested:
        return ", to be cancelled"
    if workload.held_by and not workload.queue_position:
        return ", to be held"
    return ", to be requeued" if workload.requeue_requested else ""


def _awaited(one: AwaitedWorkload) -> str:
    """ok:w-1 (prepare), RUNNING."""
    return f"{one.condition}:{one.workload} ({one.name}), {one.state.value}"


def _time_limit(workload: Workload) -> str:
    """Of each attempt; "" without one."""
    max_time_s = workload.specification.max_time_s
    return "" if max_time_s is None else f"{exact_duration(max_time_s)} for each attempt"


def notification_words(status: NotificationStatus | None) -> str:
    """How telling somebody of it goes; "": nobody is to be told. Its times are real ones, whatever the clock of the service."""
    if status is None:
        return ""
    words = []
    if status.delivered or not (status.waiting or status.given_up):
        words.append(f"{status.delivered} delivered")
    if status.failing_since_s is not None:
        words.append(f"failing since {moment(status.failing_since_s)} ({status.error})")
        if status.next_try_s is not None:
            words.append(f"next try at {moment(status.next_try_s)}")
    elif status.waiting:
        words.append(f"{status.waiting} to be sent")
    if status.given_up:
        why = f" ({status.error})" if status.error and status.failing_since_s is None else ""
        words.append(f"{status.given_up} given up{why}")
    return f"to {status.host}: {', '.join(words)}"


def _table(table: TableInput) -> str:
    said = ["fresh"] * table.fresh
    if table.max_age_s is not None:
        said.append(f"at most {duration(table.max_age_s)} behind")
    if table.newest_partitions is not None:
        said.append(f"newest {table.newest_partitions} partitions")
    return table.table + (f" ({', '.join(said)})" if said else "")
