"""Submission: the rows of a trace come in when they are due, are accepted or refused, and wait in the queue."""

from __future__ import annotations

import math
from collections.abc import Sequence

from formats.trace import TraceRow
from regional_scheduler.auction import AwaitingData
from simulator.engine.attempts import Attempts
from simulator.engine.binding import Bindings
from simulator.engine.intake import Intake
from simulator.engine.walk import Walk
from simulator.engine.workloads import SimulatedWorkload
from simulator.engine.world import World


class Submission:
    """Submits the rows, which come sorted by (submit time, id)."""

    def __init__(
        self,
        world: World,
        rows: Sequence[TraceRow],
        intake: Intake,
        bindings: Bindings,
        attempts: Attempts,
        walk: Walk,
    ) -> None:
        self._world = world
        self._rows = rows
        self._intake = intake
        self._bindings = bindings
        self._attempts = attempts
        self._walk = walk
        self.submitted = 0
        """How many rows have come in."""
        self.refused: list[bool] = []
        """By workload index: no region could ever host it."""
        self.without_data = 0
        """Accepted, but no region that could run them has their tables; tables do not move in a simulation."""

    @property
    def workloads(self) -> int:
        """How many rows there are in all."""
        return len(self._rows)

    @property
    def all_submitted(self) -> bool:
        return self.submitted == len(self._rows)

    @property
    def next_time_s(self) -> float:
        """When the next row is due; infinity when there is none."""
        return self._rows[self.submitted].submit_s if self.submitted < len(self._rows) else math.inf

    def submit_due(self, now: float) -> int:
        """Takes in every row that is due; how many there were."""
        before = self.submitted
        while self.next_time_s <= now:
            self._submit(self._rows[self.submitted], now)
            self.submitted += 1
        return self.submitted - before

    def _submit(self, row: TraceRow, now: float) -> None:
        """Accepts a workload, or refuses what no region could ever host."""
        world = self._world
        work = self._intake.workload_of(row, self.submitted)
        world.workloads.append(work)
        hosted = bool(work.eligible) or self._only_data_is_missing(work)
        self.refused.append(not hosted)
        if not hosted:
            world.ended += 1
            return
        if work.eligible:
            region = self._bindings.region_for(work)
            if region is not None:
                self._intake.bind(work, region)
        world.by_name[work.workload.workload] = work
        if world.columns is not None:
            world.columns.submit(work)
        if world.log is not None:
            world.log.submitted(work, now)
        if work.eligible:
            self._attempts.queue(work)
        else:
            self.without_data += 1
            self._log_missing_data(work, now)

    def _only_data_is_missing(self, work: SimulatedWorkload) -> bool:
        answers = self._world.room.answers(work.workload.specification)
        return any(answer.missing_tables for answer in answers.values())

    def _log_missing_data(self, work: SimulatedWorkload, now: float) -> None:
        verdict = self._world.room.verdict(self._walk.lot_of(work), (), now)
        log = self._world.log
        if isinstance(verdict, AwaitingData) and log is not None:
            tables = sorted({str(table) for _, missing in verdict.missing_tables for table in missing})
            log.awaiting_data(work, tables, verdict.sentence, now)
