"""Remembers what a region has no place for, so that it is refused without planning (MAST §4.3).

Invariant: a workload that could be placed is never refused. An entry knows for how many tasks each cluster had
capacity; whatever is released adds to that what the cluster's mechanism says it can add at most, and an entry ends as
soon as that could be enough. So there is no need to forget everything with each scan pass, as the paper does
(docs/decisions/020). It may forget: entries and questions are bounded, and those that were used last stay.

There are two ways to know, and both are exact. A job for whose tasks no cluster counts enough free capacity, where no
attempt has a worse standing, has no place; and so has one that an entry covers (`refusals.entries`).

Ignores: refusals of several jobs together; and that capacity is taken again while an entry lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from cluster_manager.capacity.free_counts import count_all
from cluster_manager.recently_used import RecentlyUsed
from domain.rank import Standing
from domain.workload import JobSpecification, Workload, WorkloadSpecification
from regional_scheduler.planner import NoPlace
from regional_scheduler.refusal import Refusal, held_for_others, no_room_alone, no_room_for_smaller
from regional_scheduler.refusals.entries import RUN_TIME, STANDING, RefusedJob, RefusedJobs, Scope, standing_column
from regional_scheduler.refusals.questions import OPEN_TO_IT, Alike, AskedJob, Question, alike, question_about
from regional_scheduler.refusals.releases import ReleaseLog
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.region_releases import RegionRelease
from regional_scheduler.run_time_class import run_time_class

QUESTIONS_REMEMBERED = 16_384
"""That were asked last."""


class KnownRefusal(NamedTuple):
    """What is known of a workload."""

    refusal: Refusal
    supposed: bool
    """Whether it only holds with what is supposed."""


class RefusalMemory:
    """What found no place in one region, and still finds none. Nothing may be released of which it does not hear."""

    __slots__ = (
        "__weakref__",
        "_count_again",
        "_known",
        "_opened",
        "_questions",
        "_region",
        "_releases",
        "_shared",
        "_supposed",
        "hits",
        "lookups",
    )

    def __init__(self, region: RegionCapacity) -> None:
        """Hears from now on what is released in the region."""
        self._region = region
        self._shared = region.shared
        self._releases = ReleaseLog()
        # Of the region alone: a method of this memory would keep it, and the region, until a search for cycles.
        self._count_again = partial(_counted_again, region)
        self._known = RefusedJobs(self._releases, self._count_again)
        self._supposed: RefusedJobs | None = None
        self._questions: RecentlyUsed[Alike, Question] = RecentlyUsed(QUESTIONS_REMEMBERED)
        self._opened = region.reserved.opened
        self.lookups = 0
        """Workloads asked about since this memory exists."""
        self.hits = 0
        """How many of them were refused."""
        region.watch(self)

    def __len__(self) -> int:
        """How many refusals still hold, without those that only hold with what is supposed."""
        self._known.drop_ended()
        return self._known.count

    # Asking.

    def question(self, specification: WorkloadSpecification, *, within_quota: bool, kept_off: bool = True) -> Question:
        """The workload as a question, to be asked again and again. Raises ValueError: see `plan_workload`.

        `kept_off`: whether it is asked for a workload that is kept off what is reserved for others, unless it ends in time.
        """
        run_time = run_time_class(specification) if kept_off and self._region.reserved.in_use else OPEN_TO_IT
        key = alike(specification, run_time, within_quota=within_quota)
        question = self._questions.get(key)
        if question is None:
            question = question_about(self._region, specification, run_time, within_quota=within_quota)
            self._questions.put(key, question)
        return question

    def refuses(self, question: Question, standing: Standing) -> bool:
        """True when the workload is known to have no place at this standing; False when nothing is known.

        Counts free capacity, too: it says nothing about what is supposed, and must not be asked meanwhile.
        """
        self.lookups += 1
        if self._region.reserved.opened != self._opened:
            self._forget_what_was_opened()
        for asked in question.jobs:
            if self._is_short(asked, standing) or self._entry_for(asked, standing) is not None:
                self.hits += 1
                return True
        return False

    def is_remembered(self, question: Question, standing: Standing) -> bool:
        """The same, by remembered refusals alone."""
        self.lookups += 1
        self._forget_what_was_opened()
        for asked in question.jobs:
            if self._entry_for(asked, standing) is not None:
                self.hits += 1
                return True
        return False

    def fails(self, workload: Workload, standing: Standing, *, within_quota: bool) -> bool:
        """The same, and by what was remembered while something is supposed, for workloads that are not asked about often."""
        return self._find(workload, standing, within_quota) is not None

    def scopes(self, specification: WorkloadSpecification, *, within_quota: bool) -> tuple[Scope, ...]:
        """Per job, what its mechanisms look at beside what it asks for. Raises ValueError: see `plan_workload`."""
        return tuple([asked.groups[0][-1] for asked in self.question(specification, within_quota=within_quota).jobs])

    def why_it_fails(
        self, workload: Workload, standing: Standing, now: float, *, within_quota: bool
    ) -> KnownRefusal | None:
        """Why the workload has no place, as far as that is remembered; None when nothing is known."""
        found = self._find(workload, standing, within_quota)
        if found is None:
            return None
        job, asked, entry, supposed = found
        if entry.row[RUN_TIME] != OPEN_TO_IT:
            binding = self._region.reserved.binding(workload.workload, workload.specification, standing, now)
            kept = held_for_others(self._region.region, job, tuple(entry.capacity), binding, now)
            return KnownRefusal(replace(kept, room=()), supposed)
        return KnownRefusal(self._explained(job, asked, entry, now), supposed)

    # Remembering.

    def remember(
        self, workload: Workload, standing: Standing, refusal: Refusal | NoPlace, now: float, *, within_quota: bool
    ) -> None:
        """Keeps a refusal of the planner at `now`, if it is one of a job alone.

        While anything is supposed, it is kept as long as that. If time has passed beyond `now`, it is not kept: some
        victims were not counted.
        """
        # Without `room` its jobs fail only together. They may fit where less is free, so nothing follows from that.
        if not refusal.room or now < self._region.time_passed_s:
            return
        self._forget_what_was_opened()
        question = self.question(workload.specification, within_quota=within_quota, kept_off=refusal.held)
        job, asked = workload.specification.jobs[0], question.jobs[0]
        if len(question.jobs) > 1:
            jobs = zip(workload.specification.jobs, question.jobs, strict=True)
            job, asked = next(pair for pair in jobs if pair[0].name == refusal.job)
        if self._region.most_tasks(np.array(refusal.room, np.int64), asked.query) >= job.tasks:
            return  # A mechanism has failed: it has not said that there is too little.
        asked.row[STANDING] = standing_column(standing)
        for layer in self._layers():
            if layer.covering(asked.groups, asked.row) is not None:
                return
        self._keep(asked, job, standing, list(refusal.room))

    @contextmanager
    def supposing(self) -> Iterator[None]:
        """What is refused inside holds with what is supposed there, and is forgotten at exit; not to be nested.

        Inside, capacity may only be taken: then what was refused before goes on holding, too.
        """
        self._supposed = RefusedJobs(self._releases, self._count_again)
        try:
            yield
        finally:
            self._supposed = None

    def clear(self) -> None:
        """Everything is forgotten."""
        self._known.clear()
        self._releases.clear()
        if self._supposed is not None:
            self._supposed.clear()

    # Hearing what is released.

    @property
    def listens(self) -> bool:
        """Whether it remembers anything."""
        return self._known.count > 0

    def capacity_released(self, release: RegionRelease) -> None:
        """Something was released or became evictable, or a machine came up: refusals are held against it when next asked."""
        if self._known.count:
            self._releases.add(release)

    # Below.

    def _forget_what_was_opened(self) -> None:
        """Machines that were kept for others and are not any more were not released: nothing is added up, all is forgotten."""
        opened = self._region.reserved.opened
        if opened != self._opened:
            self._opened = opened
            self.clear()

    def _keep(self, asked: AskedJob, job: JobSpecification, standing: Standing, capacity: list[int]) -> None:
        """One more entry, which no other one covers."""
        asked.row[STANDING] = standing_column(standing)
        entry = RefusedJob(
            asked.groups[0],
            asked.row.copy(),
            job,
            asked.query._replace(standing=standing),
            capacity,
            self._region.when_empty(asked.query.kind, job.tasks),
            tuple(self._region.packing.tolist()) if asked.query.across_clusters else (),
            self._releases.number,
        )
        if self._supposed is not None:
            self._supposed.add(entry)
            return
        # What was released before the first entry concerns none: the log need not keep it.
        if not self._known.count:
            self._releases.clear()
        self._known.add(entry)
        asked.known = entry

    def _layers(self) -> tuple[RefusedJobs, ...]:
        return (self._known,) if self._supposed is None else (self._known, self._supposed)

    def _find(
        self, workload: Workload, standing: Standing, within_quota: bool
    ) -> tuple[JobSpecification, AskedJob, RefusedJob, bool] | None:
        """The first job that is known to have no place, and how that is known; what is not only supposed comes first."""
        self.lookups += 1
        self._forget_what_was_opened()
        specification = workload.specification
        if not self._known.count and self._supposed is None:
            return None
        kept_off = self._region.reserved.of(workload.workload) is None
        question = self.question(specification, within_quota=within_quota, kept_off=kept_off)
        for job, asked in zip(specification.jobs, question.jobs, strict=True):
            entry = self._entry_for(asked, standing)
            if entry is not None:
                self.hits += 1
                return job, asked, entry, False
        if self._supposed is not None:
            for job, asked in zip(specification.jobs, question.jobs, strict=True):
                asked.row[STANDING] = standing_column(standing)
                entry = self._supposed.covering(asked.groups, asked.row)
                if entry is not None:
                    self.hits += 1
                    return job, asked, entry, True
        return None

    def _is_short(self, asked: AskedJob, standing: Standing) -> bool:
        """Whether too little is free everywhere, and there is nothing to evict."""
        shared = self._shared
        if asked.short_since == shared.releases and asked.short_at <= standing:
            return True
        counts = asked.counts
        if counts is None or asked.forgotten != shared.counted.forgotten:
            asked.counts = counts = self._region.free_counts(asked.query.kind)
            asked.forgotten = shared.counted.forgotten
            if counts is None:
                return False
        if not self._region.is_short(counts, asked.query, standing):
            return False
        if not shared.undo_log.tentative:
            asked.short_since, asked.short_at = shared.releases, standing
        return True

    def _entry_for(self, asked: AskedJob, standing: Standing) -> RefusedJob | None:
        """An entry that covers the job at this standing and still holds."""
        entry = asked.known
        if entry is not None and entry.query.standing <= standing and self._known.still_holds(entry):
            self._known.use(entry)
            return entry
        if not self._known.count:
            return None
        asked.row[STANDING] = standing_column(standing)
        entry = self._known.covering(asked.groups, asked.row)
        if entry is not None:
            asked.known = entry
        return entry

    def _explained(self, job: JobSpecification, asked: AskedJob, entry: RefusedJob, now: float) -> Refusal:
        """The refusal of this job: with what there is for tasks like its own, or with what a smaller job did not find."""
        region, standing = self._region, entry.query.standing
        room, smaller = tuple(entry.capacity), entry.job
        if asked.query.kind.number == entry.query.kind.number:
            empty = region.when_empty(asked.query.kind, job.tasks)
            return no_room_alone(region, asked.query, job, standing, room, empty, now)
        found = no_room_alone(region, entry.query, smaller, standing, room, entry.when_empty, now)
        return no_room_for_smaller(job, smaller, found)


def _counted_again(region: RegionCapacity, entry: RefusedJob) -> list[int] | None:
    """What is free where nothing could be evicted, if that is too little for the entry's tasks; else None.

    Often what was released has been taken again meanwhile; counting once costs less than planning. What is only
    tentatively taken says nothing.
    """
    query = entry.query
    if region.tentative or region.any_victim(query, query.standing):
        return None
    counts = region.free_counts(query.kind)
    if counts is None:
        table = query.kind.needs.table
        counts = np.array([count_all(cluster.arrays, table) for cluster in region.clusters], np.int64)
    if not region.is_short(counts, query, query.standing):
        return None
    capacity: list[int] = region.counts_with_releases(counts, query).tolist()
    return capacity
