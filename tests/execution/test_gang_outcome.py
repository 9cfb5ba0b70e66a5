import pytest

from services.execution.executor import AttemptPhase
from services.execution.gang_outcome import GangOutcome, TaskEnd, outcome_of
from services.execution.runner_messages import COULD_NOT_START, RunnerReport, RunnerState, StopCause
from tests.execution.orders import placement

ASKED, GANG, RELEASED = StopCause.ASKED, StopCause.GANG, StopCause.RELEASED


def end(
    code: int | None,
    cause: StopCause | None = None,
    *,
    task: int = 0,
    at_s: float = 0.0,
    early: bool | None = None,
    failure: str = "",
    out_of_memory: str = "",
) -> TaskEnd:
    """A task that ended with this code; one that was told to stop ended because of it unless said otherwise."""
    stopped_early = cause is not None if early is None else early
    report = RunnerReport(
        1,
        RunnerState.ENDED,
        exit_code=code,
        failure=failure,
        out_of_memory=out_of_memory,
        stop_cause=cause,
        stopped_early=stopped_early,
        ended_real_s=at_s,
    )
    return TaskEnd(placement(task=task), report)


def lost(task: int = 0) -> TaskEnd:
    return TaskEnd(placement(task=task), None, "its node died")


def outcome(*ends: TaskEnd, all_work_done: bool = True) -> GangOutcome:
    return outcome_of(ends, all_work_done=all_work_done, stop_reason="")


@pytest.mark.parametrize(
    ("ends", "phase", "reason"),
    [
        ((end(0), end(0, task=1)), AttemptPhase.COMPLETED, ""),
        ((), AttemptPhase.COMPLETED, ""),
        (
            (end(-9, StopCause.NO_LEASE), end(1, task=1)),
            AttemptPhase.LOST,
            "task 0 of job train on machine m0 stopped itself: no lease of its cluster allowed it to run on",
        ),
        # It had come to its end before it had to.
        ((end(0, StopCause.NO_LEASE, early=False),), AttemptPhase.COMPLETED, ""),
        ((end(3), end(-15, GANG, task=1)), AttemptPhase.FAILED, "task 0 of job train on machine m0: exit code 3"),
        (
            (end(1, at_s=9.0), end(2, task=1, at_s=8.0)),
            AttemptPhase.FAILED,
            "task 1 of job train on machine m0: exit code 2",
        ),
        (
            (
                end(-9, out_of_memory="out of memory: it used 3.2 GiB, its limit is 3 GiB (--memory-gib)"),
                end(1, task=1, at_s=1.0),
            ),
            AttemptPhase.FAILED,
            "task 0 of job train on machine m0: out of memory: it used 3.2 GiB, its limit is 3 GiB (--memory-gib)",
        ),
        (
            (end(137, failure="maybe out of memory"),),
            AttemptPhase.FAILED,
            "task 0 of job train on machine m0: exit code 137, maybe out of memory",
        ),
        ((end(-11),), AttemptPhase.FAILED, "task 0 of job train on machine m0: killed by signal 11 (SIGSEGV)"),
        ((end(-64),), AttemptPhase.FAILED, "task 0 of job train on machine m0: killed by signal 64 (SIGRTMAX)"),
        (
            (end(COULD_NOT_START, failure="could not start: no such file"),),
            AttemptPhase.FAILED,
            "task 0 of job train on machine m0: could not start: no such file",
        ),
        ((end(1), lost(1)), AttemptPhase.LOST, "task 1 of job train on machine m0 was lost: its node died"),
        ((end(-9, ASKED), lost(1)), AttemptPhase.LOST, "task 1 of job train on machine m0 was lost: its node died"),
        ((end(0, ASKED), end(-15, ASKED, task=1)), AttemptPhase.STOPPED, "it was asked to stop"),
        ((end(None, ASKED),), AttemptPhase.STOPPED, "it was asked to stop"),
        ((end(0, ASKED, early=False),), AttemptPhase.COMPLETED, ""),
        ((end(0, ASKED, early=False), end(0, ASKED, task=1)), AttemptPhase.STOPPED, "it was asked to stop"),
        (
            (end(1, ASKED),),
            AttemptPhase.STOPPED,
            "it was asked to stop; task 0 of job train on machine m0: exit code 1",
        ),
        ((end(0), end(-9, RELEASED, task=1)), AttemptPhase.COMPLETED, ""),
    ],
    ids=[
        "all well",
        "nothing to run",
        "stopped itself without a lease",
        "done before its lease was over",
        "one failed",
        "the first failure is to blame",
        "out of memory",
        "maybe out of memory",
        "a signal",
        "a rare signal",
        "not startable",
        "lost outweighs failed",
        "lost while stopping",
        "asked to stop",
        "stopped before it was started",
        "done when it was asked",
        "one done, one stopped",
        "failed while saving",
        "released tasks do not count",
    ],
)
def test_the_outcome_of_a_gang(ends: tuple[TaskEnd, ...], phase: AttemptPhase, reason: str) -> None:
    ended = outcome(*ends)
    assert (ended.phase, ended.reason) == (phase, reason)


def test_work_of_emulated_jobs_that_was_broken_off_is_not_complete() -> None:
    assert outcome(end(0), all_work_done=False).phase is AttemptPhase.STOPPED


def test_only_a_failure_has_a_culprit() -> None:
    culprit = outcome(end(0), end(4, task=1)).culprit
    assert culprit is not None
    assert culprit.task == 1
    assert outcome(end(0)).culprit is None


@pytest.mark.parametrize(
    ("ends", "exit_code"),
    [
        ((end(3), end(-15, GANG, task=1)), 3),
        ((end(1, at_s=9.0), end(2, task=1, at_s=8.0)), 2),
        # As shells have it.
        ((end(-9),), 137),
        ((end(COULD_NOT_START, failure="there is no such program"),), COULD_NOT_START),
        ((end(0),), None),
        ((end(7, ASKED),), None),
        ((lost(), end(7, task=1)), None),
    ],
)
def test_a_failure_names_the_exit_code_of_the_task_to_blame(ends: tuple[TaskEnd, ...], exit_code: int | None) -> None:
    assert outcome(*ends).exit_code == exit_code
