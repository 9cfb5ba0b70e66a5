"""Which GPUs were held from when to when: what allocation rates, utilisation and the Gantt are made from.

An attempt's capacity is reserved from its dispatch on. Where it has to wait for its victims to leave, they hold it
still: what the attempt itself is said to hold begins when the last of them is gone. And however many have reserved a
GPU or still hold it, it is one allocated GPU (`levels_of_machines`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.results.grouping import sums_by_group
from simulator.results.run_record import NO_ROW, Integers, Reals, RunRecord


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """One row per share of an attempt, in the order of the table of shares."""

    attempt: Integers
    machine: Integers
    region: Integers
    gpus: Integers
    reserved_s: Reals
    """From here on no other attempt could get it."""
    from_s: Reals
    """From here on its victims were gone."""
    until_s: Reals
    """Until the run was over, for what was held then."""

    @property
    def gpu_seconds(self) -> Reals:
        return np.maximum(self.until_s - self.from_s, 0.0) * self.gpus.astype(np.float64)


def holdings_of(record: RunRecord) -> Holdings:
    """What all attempts of the run held."""
    attempts, shares = record.attempts, record.shares
    attempt = np.repeat(np.arange(len(attempts)), np.diff(attempts.first_share))
    reserved_s, from_s, until_s = (
        attempts.dispatched_s[attempt],
        held_from_s(record)[attempt],
        held_until_s(record)[attempt],
    )
    if shares.from_s is not None:
        reserved_s, from_s = np.fmax(reserved_s, shares.from_s), np.fmax(from_s, shares.from_s)
    if shares.until_s is not None:
        until_s = np.fmin(until_s, shares.until_s)
    region = record.machines.region[shares.machine]
    return Holdings(attempt, shares.machine, region, shares.gpus, reserved_s, from_s, until_s)


def held_from_s(record: RunRecord) -> Reals:
    """For each attempt the time from which it alone had its capacity."""
    attempts = record.attempts
    from_s = attempts.dispatched_s.copy()
    victims = np.flatnonzero((attempts.evicted_by != NO_ROW) & ~np.isnan(attempts.ended_s))
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


@dataclass(frozen=True, slots=True, eq=False)
class MachineLevels:
    """GPUs held of each machine: `gpus[i]` of `machine[i]` from `times[i]` to the machine's next row."""

    machine: Integers
    times: Reals
    gpus: Integers


def levels_of_machines(holdings: Holdings, from_s: Reals) -> MachineLevels:
    """How many GPUs of each machine are held at any time, by (machine, time); a machine's last level is 0.

    `from_s` says when each of the holdings begins. A machine may have more than it has GPUs: see above.
    """
    there = holdings.until_s > from_s
    machine = np.tile(holdings.machine[there], 2)
    times = np.concatenate((from_s[there], holdings.until_s[there]))
    steps = np.concatenate((holdings.gpus[there], -holdings.gpus[there]))
    order = np.lexsort((times, machine))
    machine, times = machine[order], times[order]
    # Each machine's steps add up to 0, so one sum serves for all of them.
    gpus = np.cumsum(steps[order])
    last = np.append((machine[1:] != machine[:-1]) | (times[1:] > times[:-1]), True)[: len(times)]
    return MachineLevels(machine[last], times[last], gpus[last])


def gpu_seconds_of_attempts(record: RunRecord, holdings: Holdings) -> Reals:
    """GPU-seconds that each attempt held."""
    return sums_by_group(holdings.attempt, holdings.gpu_seconds, len(record.attempts))
