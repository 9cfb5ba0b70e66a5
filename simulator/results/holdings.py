"""Which GPUs were held from when to when: what allocation rates, utilisation and the Gantt are made from.

An attempt's capacity is reserved from its dispatch on. Where it had to wait for its victims to leave, it holds only
what they have left: so its holding begins when the last of them is gone, and no GPU is ever counted twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.results.run_record import NOBODY, Integers, Reals, RunRecord


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """One row per share of an attempt, in the order of the table of shares."""

    attempt: Integers
    machine: Integers
    region: Integers
    gpus: Integers
    from_s: Reals
    until_s: Reals
    """Until the run was over, for what was held then."""

    @property
    def gpu_seconds(self) -> Reals:
        return self.gpus * np.maximum(self.until_s - self.from_s, 0.0)


def holdings_of(record: RunRecord) -> Holdings:
    """What all attempts of the run held."""
    attempts, shares = record.attempts, record.shares
    attempt = np.repeat(np.arange(len(attempts)), np.diff(attempts.first_share))
    from_s, until_s = held_from_s(record)[attempt], held_until_s(record)[attempt]
    if shares.from_s is not None:
        from_s = np.fmax(from_s, shares.from_s)
    if shares.until_s is not None:
        until_s = np.fmin(until_s, shares.until_s)
    return Holdings(attempt, shares.machine, record.machines.region[shares.machine], shares.gpus, from_s, until_s)


def held_from_s(record: RunRecord) -> Reals:
    """For each attempt the time from which it alone had its capacity."""
    attempts = record.attempts
    from_s = attempts.dispatched_s.copy()
    victims = np.flatnonzero((attempts.evicted_by != NOBODY) & ~np.isnan(attempts.ended_s))
    if not len(victims):
        return from_s
    # The attempt that a victim made room for: that workload's newest one when the victim was gone.
    order = np.lexsort((attempts.dispatched_s, attempts.workload))
    times = np.unique(np.concatenate((attempts.dispatched_s, attempts.ended_s[victims])))
    stride = len(times) + 1
    keys = attempts.workload[order] * stride + np.searchsorted(times, attempts.dispatched_s[order])
    wanted = attempts.evicted_by[victims] * stride + np.searchsorted(times, attempts.ended_s[victims])
    found = np.searchsorted(keys, wanted, side="right") - 1
    taker = order[np.maximum(found, 0)]
    known = (found >= 0) & (attempts.workload[taker] == attempts.evicted_by[victims])
    np.maximum.at(from_s, taker[known], attempts.ended_s[victims[known]])
    # A victim of a later attempt to get room does not move a start that has already been.
    return np.fmin(from_s, np.fmin(attempts.started_s, held_until_s(record)))


def held_until_s(record: RunRecord) -> Reals:
    """For each attempt its end, or the run's."""
    ended_s = record.attempts.ended_s
    return np.where(np.isnan(ended_s), record.ended_s, ended_s)


def gpu_seconds_of_attempts(record: RunRecord, holdings: Holdings) -> Reals:
    """GPU-seconds that each attempt held."""
    return np.bincount(holdings.attempt, weights=holdings.gpu_seconds, minlength=len(record.attempts))
