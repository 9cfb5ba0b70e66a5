"""Which lots a region tells apart by their standing alone, so that an answer to one of them is an answer to another (decision 077).

Each region says it of the lots as it has planned them: what is decided for a job, as that it is to be consolidated, may be
another thing in another region.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import takewhile
from typing import TypeAlias

from domain.workload import JobSpecification
from domain.workload_fingerprint import workload_fingerprint
from regional_scheduler.rounds import Lot

Likeness: TypeAlias = Hashable
"""Equal for lots that ask for the same, at the same places, on the same side of the quota."""

LONG_RUN = 16
"""So many lots in a row that are alike are put up alone, without guesses: all of them are decided at once."""


def likeness_of(lot: Lot) -> Likeness:
    """All that an answer depends on, beside what the region has placed, the instant, and the lot's standing.

    That is so where the region neither tells tenants apart nor keeps machines for anybody.
    """
    specification = lot.workload.specification
    return (
        tuple([_asked(job) for job in specification.jobs]),
        specification.regions,
        specification.tables,
        workload_fingerprint(specification),
        lot.position.within_quota,
    )


def _asked(job: JobSpecification) -> tuple[Hashable, ...]:
    """Everything of a job but what runs in its tasks."""
    return (
        job.name,
        job.tasks,
        job.max_tasks,
        job.resources,
        job.consolidate,
        job.profile,
        job.affinity,
        job.fills_fragments,
        job.scaling,
        job.across_clusters,
    )


def first_alike(lots: Sequence[Lot]) -> tuple[int, ...]:
    """By lot, the position of the first one that is like it."""
    first: dict[Likeness, int] = {}
    return tuple([first.setdefault(likeness_of(lot), position) for position, lot in enumerate(lots)])


def leading_run(lots: Sequence[Lot]) -> int:
    """How many of the first lots are alike."""
    if not lots:
        return 0
    first = likeness_of(lots[0])
    return sum(1 for _ in takewhile(lambda lot: likeness_of(lot) == first, lots))
