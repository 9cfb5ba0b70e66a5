"""Submission: workloads come in when they are due, are accepted or refused, and wait in the queue."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulator.engine.arrivals import Arrival
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.intake import Intake
from simulator.engine.readers_of_tables import ReadersOfTables
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World

MADE_AT_ONCE = 256
"""So many workloads are made in one go: what they are does not depend on when they come, and each costs less that way."""


class ArrivalSubmission:
    """Submits what arrives, which comes sorted by (submit time, id). What the world has already came before all of it."""

    def __init__(
        self,
        world: World,
        arrivals: Sequence[Arrival],
        intake: Intake,
        bindings: Bindings,
        attempts: Attempts,
        readers: ReadersOfTables,
    ) -> None:
        self._world = world
        self._arrivals = arrivals
        self._intake = intake
        self._bindings = bindings
        self._attempts = attempts
        self._readers = readers
        self._next = 0
        self._made: Sequence[SimulatedWorkload] = ()
        """The next ones, made ahead of their time, ..."""
        self._first_made = 0
        """... and which arrival the first of them is."""
        self._there_before = len(world.workloads)
        self.next_time_s = arrivals[0].submit_s if arrivals else math.inf
        """When the next one is due; infinity when all have been submitted. Read only."""

    @property
    def submitted(self) -> int:
        """How many workloads have come in, those included that were there when the run began."""
        return self._there_before + self._next

    @property
    def workloads(self) -> int:
        """How many there are in all."""
        return self._there_before + len(self._arrivals)

    def submit_due(self, now: float) -> int:
        """Takes in everything that is due; how much there was."""
        before, arrivals = self._next, self._arrivals
        while self._next < len(arrivals) and arrivals[self._next].submit_s <= now:
            self._submit(now)
            self._next += 1
        self.next_time_s = arrivals[self._next].submit_s if self._next < len(arrivals) else math.inf
        return self._next - before

    def _make_next(self) -> SimulatedWorkload:
        """The workload of the next arrival."""
        place = self._next - self._first_made
        if place >= len(self._made):
            ahead = self._arrivals[self._next : self._next + MADE_AT_ONCE]
            first, workload_of = self.submitted, self._intake.workload_of
            self._made = [workload_of(arrival.what, index) for index, arrival in enumerate(ahead, first)]
            self._first_made, place = self._next, 0
        return self._made[place]

    def _submit(self, now: float) -> None:
        """Accepts a workload, or refuses what no region could ever host."""
        world = self._world
        work = self._make_next()
        self._readers.place(work)
        world.workloads.append(work)
        hosted = bool(work.eligible) or only_data_is_missing(world, work)
        world.refused.append(not hosted)
        if not hosted:
            world.ended += 1
            return
        if work.eligible:
            region = self._bindings.region_for(work, now)
            if region is not None:
                self._intake.bind(work, region)
        world.by_name[work.workload.workload] = work
        if world.columns is not None:
            world.columns.submit(work)
        if world.log is not None:
            world.log.submitted(work, now)
        self._readers.submitted(work)
        if work.eligible:
            self._attempts.queue(work)
        else:
            self._readers.awaits_data(work, now)


def only_data_is_missing(world: World, work: SimulatedWorkload) -> bool:
    """Whether some region has the hardware for it, and only its tables are elsewhere."""
    answers = world.regions.answers(work.workload.specification)
    return any(answer.missing_tables for answer in answers.values())
