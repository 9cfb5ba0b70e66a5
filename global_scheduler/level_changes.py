"""Which live attempts have crossed into another level, between two scan passes.

An attempt changes its level at the very instant of the crossing, in the service and in a simulation alike: a timer
goes off then, and not the next pass, which may be far. What waits is ranked by passes alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from domain.identifiers import AttemptNumber
from domain.placement import AttemptKey
from domain.rank import OVER_QUOTA_LEVELS, Standing
from global_scheduler.knowledge import PolicyView
from global_scheduler.levels.assignment import running_levels
from global_scheduler.scan_plan import Reclassification
from global_scheduler.scan_settings import QueueRule
from global_scheduler.view_builder import RunningRows, known_of_running


class LevelChanges(NamedTuple):
    """Decided at one moment."""

    changes: tuple[Reclassification, ...]
    next_change_s: float
    """When the next attempt crosses if all go on; infinity: never."""


def level_changes(running: RunningRows, rules: Sequence[QueueRule], now: float) -> LevelChanges:
    """What changes at `now`; attempts that are leaving, or being set up, keep their levels."""
    known = known_of_running(running)
    priority = np.asarray(running.priority, np.int8)
    before = np.asarray(running.level, np.int16)
    within_quota = np.asarray(running.within_quota, np.bool_)
    stays = ~np.asarray(running.leaving, np.bool_) & ~np.isnan(known.started_s)
    assigned = running_levels([rule.levels for rule in rules], priority[stays], PolicyView(known.rows(stays), now))
    rows = np.flatnonzero(stays)
    # Whether what is over quota stands below the rest, passes alone decide.
    level_then = assigned.level + before[rows] // OVER_QUOTA_LEVELS * OVER_QUOTA_LEVELS
    moved = np.flatnonzero(level_then != before[rows])
    attempts = np.asarray(running.attempts, np.int32)
    changes = [
        Reclassification(
            key=AttemptKey(running.workloads[row], AttemptNumber(int(attempts[row]))),
            within_quota=bool(within_quota[row]),
            standing=Standing(int(priority[row]), level),
            was_within_quota=bool(within_quota[row]),
            was_standing=Standing(int(priority[row]), int(before[row])),
            row=row,
        )
        for row, level in zip(rows[moved].tolist(), level_then[moved].tolist(), strict=True)
    ]
    return LevelChanges(tuple(changes), assigned.next_change_s if len(rows) else math.inf)
