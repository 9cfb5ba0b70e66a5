"""Whether a job is on more machines than it needs."""

from __future__ import annotations


def fewest_machines(tasks: int, most_tasks_per_machine: int) -> int:
    """On how many machines so many tasks fit where each of these may be theirs alone.

    Raises ValueError for a machine that holds none of them.
    """
    if most_tasks_per_machine < 1:
        raise ValueError("no task fits on such a machine")
    return -(-tasks // most_tasks_per_machine)


def is_spread(machines: int, tasks: int, most_tasks_per_machine: int) -> bool:
    """Whether so many machines are more than the tasks need."""
    return machines > fewest_machines(tasks, most_tasks_per_machine)
