"""What level and ordering policies say of one workload: the simulator ranks event by event, policies look at columns."""

from __future__ import annotations

import math

import numpy as np

from global_scheduler.knowledge import KnownWork, OracleWork, PolicyView
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.policy import OrderingInput, OrderingPolicy
from simulator.engine.workloads import SimulatedWorkload


class OneWorkload:
    """Columns of one row, made once."""

    def __init__(self, ordering: OrderingPolicy, levels: LevelPolicy | None) -> None:
        """Without `levels` all are at level 0."""
        self._ordering = ordering
        self._levels = levels
        self._row = np.zeros((6, 1))
        self._known = KnownWork(self._row[0], self._row[1], self._row[2], self._row[3], self._row[4])
        self._oracle = OracleWork(self._row[5])
        self._no_credit = np.zeros(1)

    @property
    def moves_with_time(self) -> bool:
        """Whether the level of what waits depends on `now`."""
        return self._levels is not None and self._levels.moves_with_time

    def ordering_credit(self, work: SimulatedWorkload, now: float) -> float:
        """Of a workload that waits, where no scan pass gives credit."""
        self._look_at(work)
        queue = OrderingInput(self._known, now, self._oracle, credit=self._no_credit)
        return float(self._ordering.ordering_credit(queue)[0])

    def queued_level(self, work: SimulatedWorkload, now: float) -> int:
        """The level at which it waits."""
        if self._levels is None:
            return 0
        self._look_at(work)
        return int(self._levels.queued_levels(PolicyView(self._known, now, self._oracle))[0])

    def running_level(self, work: SimulatedWorkload, now: float) -> tuple[int, float]:
        """The level at which its attempt runs from `now` on, and when it changes next; infinity: never."""
        if self._levels is None:
            return 0, math.inf
        self._look_at(work)
        running = self._levels.running_levels(PolicyView(self._known, now, self._oracle))
        return int(running.level[0]), float(running.until_s[0])

    def _look_at(self, work: SimulatedWorkload) -> None:
        self._row[:, 0] = (
            work.gpus,
            work.submitted_s,
            work.queued_since_s,
            work.attained_gpu_s,
            work.started_s,
            work.work_s - work.progress,
        )
