"""What is true of the run of an attempt at every moment."""

from __future__ import annotations

from types import MappingProxyType

from cluster_manager.attempt_run.run import AttemptRun, Phase
from domain.life_cycle import ENDED, QUEUED, State

STATES: MappingProxyType[Phase, frozenset[State]] = MappingProxyType(
    {
        Phase.DISPATCHED: frozenset({State.DISPATCHED}),
        Phase.STARTING: frozenset({State.DISPATCHED}),
        Phase.RUNNING: frozenset({State.RUNNING}),
        Phase.LEAVING: frozenset({State.PREEMPTING}),
        Phase.BROKEN: frozenset({State.DISPATCHED, State.RUNNING}),
        Phase.ENDED: ENDED | QUEUED,
    }
)
"""In which states a workload can be while its attempt is in a phase."""


class BrokenRun(Exception):
    """An invariant does not hold; the sentence says which."""


def check(run: AttemptRun) -> None:
    """Raises BrokenRun unless the attempt's parts agree with each other."""
    start, saved, reached = run.facts.progress_at_start, run.checkpoint_progress, run.progress
    key = run.key
    name = f"attempt {key.attempt} of {key.workload}"
    if run.state not in STATES[run.phase]:
        raise BrokenRun(f"{name} is {run.phase}, but its workload is {run.state}")
    if not start <= saved <= reached:
        raise BrokenRun(f"{name} started from {start}, has saved {saved} and reached {reached}: these must not fall")
    if run.phase is Phase.RUNNING and run.started_s is None:
        raise BrokenRun(f"{name} runs, but has never started")
    if run.phase is Phase.LEAVING and run.eviction is None:
        raise BrokenRun(f"{name} is leaving for no cause")
    if run.phase in (Phase.DISPATCHED, Phase.STARTING, Phase.RUNNING, Phase.BROKEN) and run.eviction is not None:
        raise BrokenRun(f"{name} is {run.phase}, but was asked to leave: {run.eviction.cause}")
    if run.phase in (Phase.DISPATCHED, Phase.STARTING) and run.started_s is not None:
        raise BrokenRun(f"{name} is {run.phase}, but runs since {run.started_s}")
