"""What attempts did with what they held: work that was kept, and work that was lost, in GPU-seconds.

Where a workload's work is known in seconds, one second of it on all the GPUs that it asked for counts as that many
GPU-seconds; so tuning that makes it faster than on its proportional share does more work than it holds GPU-seconds. Of
real training the log knows steps only: there it is the share of the steps, of the GPU-seconds in which it ran.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.results.run_record import AttemptEnd, Reals, RunRecord


@dataclass(frozen=True, slots=True, eq=False)
class AttemptWork:
    """GPU-seconds of each attempt."""

    useful: Reals
    """Kept, or still under way when the run was over."""
    lost: Reals
    """Done after the last checkpoint, and to be done again."""


def work_of_attempts(record: RunRecord, held_gpu_s: Reals) -> AttemptWork:
    """The work of all attempts; `held_gpu_s` is what each of them held."""
    attempts, workloads = record.attempts, record.workloads
    until_s = np.where(np.isnan(attempts.ended_s), record.ended_s, attempts.ended_s)
    ran_s = np.nan_to_num(until_s - attempts.started_s)
    work_s = workloads.work_s[attempts.workload]
    # An attempt that still runs and does not say how far it is has worked as long as it ran.
    still_runs = attempts.end == AttemptEnd.RUNNING
    supposed = np.fmin(attempts.progress_at_start + ran_s, work_s)
    reached = np.where(np.isnan(attempts.progress_at_end) & still_runs, supposed, attempts.progress_at_end)
    nothing_lost = still_runs | (attempts.end == AttemptEnd.COMPLETED) | np.isnan(attempts.progress_kept)
    kept = np.where(nothing_lost, reached, attempts.progress_kept)
    done = np.nan_to_num(reached - attempts.progress_at_start)
    lost = np.nan_to_num(reached - kept)
    held_s = until_s - attempts.dispatched_s
    ran_gpu_s = held_gpu_s * np.divide(ran_s, held_s, out=np.zeros_like(ran_s), where=held_s > 0)
    per_unit = np.divide(ran_gpu_s, done, out=np.zeros_like(done), where=done > 0)
    per_unit = np.where(np.isnan(work_s), per_unit, workloads.gpus[attempts.workload])
    return AttemptWork(useful=(done - lost) * per_unit, lost=lost * per_unit)
