"""Whatever is drawn: no run breaks an invariant, loses a workload, or invents work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.policies.registry import policies
from simulator.results.run_record import AttemptEnd, WorkloadEnd
from tests.examples import examples
from tests.simulator.engine.checked_run import CheckedRun, checked_run
from tests.simulator.engine.small_worlds import SmallWorld, crowded_worlds, small_worlds

ALL_POLICIES = tuple(policies())


def run_of(world: SmallWorld, policy: str) -> CheckedRun:
    """All that `checked_run` checks, checked: log, laws, inventories."""
    chosen = policies()[policy]
    return checked_run(
        chosen, world.rows, world.fleet, world.tenants if chosen.scans else None, world.settings, tables=world.tables
    )


@pytest.mark.parametrize("policy", ALL_POLICIES)
@settings(max_examples=examples(20))
@given(world=small_worlds())
def test_never_a_run_that_breaks_an_invariant(policy: str, world: SmallWorld) -> None:
    """The validator, the conservation laws, the inventories' own check, and an end for every workload."""
    run_of(world, policy)


@pytest.mark.parametrize("policy", ["mast", "las", "srtf"])
@settings(max_examples=examples(30))
@given(world=crowded_worlds())
def test_never_an_invariant_broken_where_all_compete(policy: str, world: SmallWorld) -> None:
    run_of(world, policy)


@settings(max_examples=examples(10))
@given(world=crowded_worlds())
def test_never_an_invariant_broken_where_all_take_turns(world: SmallWorld) -> None:
    """Slices of a minute: hundreds of evictions in each of these worlds."""
    run_of(world, "gandiva")


@pytest.mark.parametrize("policy", ["mast", "las"])
@settings(max_examples=examples(40))
@given(world=crowded_worlds())
def test_never_more_or_less_than_the_work_asked_for(policy: str, world: SmallWorld) -> None:
    """Attempt by attempt, computed here once more: nobody works longer than there is work, and GPU-seconds add up."""
    record = run_of(world, policy).record
    workloads, attempts = record.workloads, record.attempts
    worked_s = np.nan_to_num(attempts.ended_s - attempts.started_s)
    ended = [AttemptEnd(end) for end in attempts.end.tolist()]
    for at, owner in enumerate(attempts.workload.tolist()):
        assert attempts.progress_at_end[at] <= workloads.work_s[owner] * (1 + 1e-9)
        assert attempts.progress_at_start[at] <= attempts.progress_kept[at] <= attempts.progress_at_end[at]
        if ended[at] is AttemptEnd.COMPLETED:
            left_s = workloads.work_s[owner] - attempts.progress_at_start[at]
            assert worked_s[at] == pytest.approx(left_s, abs=1e-6)
        else:
            assert ended[at] in {AttemptEnd.PREEMPTED, AttemptEnd.MACHINE_LOST}
            assert worked_s[at] >= attempts.progress_at_end[at] - attempts.progress_at_start[at] - 1e-6
    for owner, end in enumerate(workloads.end.tolist()):
        mine = [at for at, of in enumerate(attempts.workload.tolist()) if of == owner]
        completed = [at for at in mine if ended[at] is AttemptEnd.COMPLETED]
        assert len(completed) == (end == WorkloadEnd.COMPLETED)
        kept_s = sum(attempts.progress_kept[at] - attempts.progress_at_start[at] for at in mine)
        if completed:
            gpu_s = kept_s * workloads.gpus[owner]
            assert gpu_s == pytest.approx(workloads.work_s[owner] * workloads.gpus[owner])


@settings(max_examples=examples(40))
@given(world=small_worlds(failing=False), stop_after_s=st.floats(1.0, 2000.0))
def test_never_more_told_than_happened_before_a_run_is_broken_off(world: SmallWorld, stop_after_s: float) -> None:
    """A run that is stopped is the beginning of the run that is not."""
    mast = policies()["mast"]
    whole = checked_run(mast, world.rows, world.fleet, world.tenants, world.settings, tables=world.tables)
    stopping = world.settings.model_copy(update={"stop_after_s": stop_after_s})
    part = checked_run(mast, world.rows, world.fleet, world.tenants, stopping, tables=world.tables)
    told, all_told = ([record for record in log if record["event"] != "run_ended"] for log in (part.log, whole.log))
    assert told == all_told[: len(told)]
    stop_s = min(each.submit_s for each in world.rows) + stop_after_s
    later = [record["t"] for record in all_told[len(told) :]]
    assert [time_s for time_s in later if isinstance(time_s, float) and time_s < stop_s] == []
