"""What must be conserved in every run, whatever the policy: checked on its tables, by other ways than the figures.

Little's law by integration, work done against work asked, GPU-seconds by attempts against those by shares, lives that
make sense, and never more GPUs in use than a machine has.
"""

from __future__ import annotations

import numpy as np

from simulator.results.grouping import sums_by_group
from simulator.results.holdings import held_from_s, held_until_s, holdings_of, levels_of_machines
from simulator.results.run_record import AttemptEnd, Flags, Integers, RunRecord, WorkloadEnd
from simulator.results.step_curve import curve_of_intervals

_RELATIVE = 1e-6
_CLOCK_S = 1e-3
"""Progress is a sum of many rounded times; see docs/events.md on what the log promises."""
_OVERLAP_S = 1.0
"""Live clocks: what an attempt does may be written with a time up to a second late (docs/events.md)."""
_SHOWN = 3


class ConservationBroken(Exception):
    """A run's tables contradict themselves; the message has a sentence for each law that is violated."""


def check_conservation(record: RunRecord) -> None:
    """Raises ConservationBroken when a law is violated."""
    broken = violated_laws(record)
    if broken:
        raise ConservationBroken("\n".join(broken))


def violated_laws(record: RunRecord) -> list[str]:
    """One sentence for each law that does not hold, with the numbers; empty when all do."""
    return [
        *_invariants(record),
        *_lives(record),
        *_littles_law(record),
        *_work(record),
        *_gpu_seconds(record),
        *_capacity(record),
    ]


def _invariants(record: RunRecord) -> list[str]:
    """What the run itself found."""
    broken = record.counts.invariants_broken
    return [f"{broken} invariants were broken while it ran; its event log names them"] if broken else []


def _lives(record: RunRecord) -> list[str]:
    """Times in order, attempts one after the other, ends that agree."""
    workloads, attempts = record.workloads, record.attempts
    owner = attempts.workload
    ended = np.isin(workloads.end, (WorkloadEnd.COMPLETED, WorkloadEnd.FAILED, WorkloadEnd.CANCELLED))
    completions = sums_by_group(owner, attempts.end == AttemptEnd.COMPLETED, len(workloads))
    live = sums_by_group(owner, np.isnan(attempts.ended_s), len(workloads))
    order = np.lexsort((attempts.number, owner))
    same = owner[order][1:] == owner[order][:-1]
    ended_before = attempts.ended_s[order][:-1] <= attempts.dispatched_s[order][1:] + _CLOCK_S
    overlapping = np.zeros(len(attempts), dtype=np.bool_)
    overlapping[order[1:]] = same & ~ended_before
    numbered = np.zeros(len(attempts), dtype=np.bool_)
    numbered[order[1:]] = same & (np.diff(attempts.number[order]) <= 0)
    unfinished = workloads.end <= WorkloadEnd.RUNNING
    victims = (attempts.end == AttemptEnd.PREEMPTED) & (attempts.evicted_by == owner)
    laws = (
        ("workloads ended before they were submitted", workloads.ended_s < workloads.submitted_s - _CLOCK_S),
        ("workloads have an end without its time, or a time without an end", ended != ~np.isnan(workloads.ended_s)),
        (
            "workloads completed without exactly one attempt that did",
            completions != (workloads.end == WorkloadEnd.COMPLETED),
        ),
        (
            "workloads have a live attempt and do not run, or run without one",
            live != (workloads.end == WorkloadEnd.RUNNING),
        ),
    )
    broken = [sentence for what, wrong in laws for sentence in _about_workloads(record, what, wrong)]
    of_attempts = (
        ("attempts were dispatched before their workload was submitted",
         attempts.dispatched_s < workloads.submitted_s[owner] - _CLOCK_S),
        ("attempts started before they were dispatched", attempts.started_s < attempts.dispatched_s - _CLOCK_S),
        ("attempts ended before they started", attempts.ended_s < attempts.started_s - _CLOCK_S),
        ("attempts began before the one before them had ended", overlapping),
        ("attempts are not numbered in their order", numbered),
        ("attempts made room for their own workload", victims),
    )  # fmt: skip
    broken += [sentence for what, wrong in of_attempts for sentence in _about_attempts(record, what, wrong)]
    if record.broken_off != bool(unfinished.any() or record.not_submitted):
        broken.append(
            f"the run says broken_off {record.broken_off}, but {int(unfinished.sum())} workloads have not ended and "
            f"{record.not_submitted} were not submitted"
        )
    return broken


def _littles_law(record: RunRecord) -> list[str]:
    """L = λW: the average number in the system, integrated over the run, is the rate times the average time in it."""
    workloads = record.workloads
    there = workloads.end != WorkloadEnd.REFUSED
    span_s = record.ended_s - record.started_s
    if span_s <= 0 or not there.any():
        return []
    # Of what was there when the run began, the time since then counts.
    from_s = np.maximum(workloads.submitted_s[there], record.started_s)
    until_s = np.where(np.isnan(workloads.ended_s), record.ended_s, workloads.ended_s)[there]
    number = curve_of_intervals(from_s, until_s).integral(record.started_s, record.ended_s) / span_s
    rate, mean_s = len(from_s) / span_s, float((until_s - from_s).mean())
    if np.isclose(number, rate * mean_s, rtol=_RELATIVE, atol=1e-9):
        return []
    return [
        (
            f"Little's law: on average {number:.9g} workloads were in the system, but {rate:.9g} per second came and "
            f"stayed {mean_s:.9g} s: {rate * mean_s:.9g}; some times are outside of the run or the wrong way round"
        )
    ]


def _work(record: RunRecord) -> list[str]:
    """Completed work is the work that was asked for, every attempt begins where the one before it left off."""
    workloads, attempts = record.workloads, record.attempts
    owner = attempts.workload
    known = ~np.isnan(workloads.work_s)
    completed = known & (workloads.end == WorkloadEnd.COMPLETED)
    ended = ~np.isnan(attempts.ended_s)
    kept = np.where(attempts.end == AttemptEnd.COMPLETED, attempts.progress_at_end, attempts.progress_kept)
    done = sums_by_group(owner, np.where(ended, np.nan_to_num(kept - attempts.progress_at_start), 0.0), len(workloads))
    if workloads.done_before is not None:
        done = done + workloads.done_before
    wrong = completed & ~np.isclose(done, workloads.work_s, rtol=_RELATIVE, atol=_CLOCK_S)
    broken = _about_workloads(record, "completed workloads did not do the work asked for", wrong)
    order = np.lexsort((attempts.number, owner))
    follows = np.flatnonzero((owner[order][1:] == owner[order][:-1]) & known[owner[order][1:]])
    gap = attempts.progress_at_start[order][follows + 1] - attempts.progress_kept[order][follows]
    jumps = np.zeros(len(attempts), dtype=np.bool_)
    jumps[order[follows + 1]] = np.abs(gap) > _CLOCK_S
    lost = attempts.progress_kept > attempts.progress_at_end + _CLOCK_S
    return [
        *broken,
        *_about_attempts(record, "attempts do not begin with what the one before them kept", jumps),
        *_about_attempts(record, "attempts kept more than they had reached", lost),
    ]


def _gpu_seconds(record: RunRecord) -> list[str]:
    """GPU-seconds by attempts are those by shares."""
    attempts, shares = record.attempts, record.shares
    by_share = holdings_of(record)
    resized = np.zeros(len(attempts), dtype=np.bool_)
    if shares.from_s is not None and shares.until_s is not None:
        partly = ~np.isnan(shares.from_s) | ~np.isnan(shares.until_s)
        resized[by_share.attempt[partly]] = True
    seconds = np.maximum(held_until_s(record) - held_from_s(record), 0.0)
    by_attempts = attempts.gpus * seconds
    by_shares = sums_by_group(by_share.attempt, by_share.gpu_seconds, len(attempts))
    wrong = ~resized & ~np.isclose(by_attempts, by_shares, rtol=_RELATIVE, atol=_CLOCK_S)
    return _about_attempts(record, "attempts held other GPU-seconds than their shares", wrong)


def _capacity(record: RunRecord) -> list[str]:
    """What runs on a machine never holds more GPUs than it has; a moment's overlap of a clock that jumps is none."""
    holdings = holdings_of(record)
    started_s = np.fmax(record.attempts.started_s[holdings.attempt], holdings.reserved_s)
    runs = ~np.isnan(record.attempts.started_s[holdings.attempt])
    levels = levels_of_machines(holdings, np.where(runs, started_s, np.inf))
    spans = np.append(np.diff(levels.times), 0.0)[: len(levels.times)]
    over = np.flatnonzero((levels.gpus > record.machines.gpus[levels.machine]) & (spans > _OVERLAP_S))
    if not len(over):
        return []
    first = int(over[0])
    machine = int(levels.machine[first])
    return [
        (
            f"machine {record.machines.names[machine]} has {record.machines.gpus[machine]} GPUs, but "
            f"{levels.gpus[first]} were held for {spans[first]:g} s from {levels.times[first]:.3f} on"
            + (f", and {len(over) - 1} more times such" if len(over) > 1 else "")
        )
    ]


def _about_workloads(record: RunRecord, what: str, wrong: Flags) -> list[str]:
    rows = np.flatnonzero(wrong)
    return [_sentence(what, [record.workloads.ids[row] for row in rows[:_SHOWN]], len(rows))] if len(rows) else []


def _about_attempts(record: RunRecord, what: str, wrong: Flags) -> list[str]:
    rows: Integers = np.flatnonzero(wrong)
    attempts = record.attempts
    shown = [f"{record.workloads.ids[attempts.workload[row]]}#{attempts.number[row]}" for row in rows[:_SHOWN]]
    return [_sentence(what, shown, len(rows))] if len(rows) else []


def _sentence(what: str, shown: list[str], count: int) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return f"{count} {what}: {', '.join(shown)}{more}"
