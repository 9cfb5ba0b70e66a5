"""Real programs on real CPUs."""

import os
import sys
from pathlib import Path

import pytest

from domain.identifiers import JobName
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification
from services.profiling.measured_run import Effort, NotMeasured, measured

CPUS = sorted(os.sched_getaffinity(0))
PROGRAM = Path(__file__).parent / "pinned_training.py"
FEW = Effort(iterations=3, least_s=0.0, timeout_s=120.0)


def job(*arguments: str, **environment: str) -> JobSpecification:
    return JobSpecification(
        JobName("main"),
        1,
        TaskResources(gpus=1),
        Command((sys.executable, *arguments)),
        environment=tuple(environment.items()),
    )


def test_a_program_and_what_it_starts_are_on_the_cpus_that_it_has(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    found = measured(job(str(PROGRAM), STEPS="1000000", SEEN=str(seen)), CPUS[:1], 1.0, FEW)
    assert found.iterations_per_s > 0
    assert found.process_gib > 0
    assert set(seen.read_text().splitlines()[:-1]) == {f"{CPUS[:1]} {CPUS[:1]}"}


def test_one_that_ends_by_itself_has_been_measured_so_far(tmp_path: Path) -> None:
    found = measured(job(str(PROGRAM), STEPS="4", SEEN=str(tmp_path / "seen")), CPUS, 1.0, FEW)
    assert found.iterations_per_s > 0


@pytest.mark.parametrize(
    ("arguments", "timeout_s", "why"),
    [
        (("-c", "raise SystemExit('no GPU')"), 60.0, "ended before its second iteration; it said last: no GPU"),
        (("-c", "import time; time.sleep(600)"), 0.5, "must use topmast.training and call session.step"),
        (("-c", f"exec(open({str(PROGRAM)!r}).read())"), 60.0, "KeyError: 'STEPS'; let it train for longer, or mend"),
    ],
)
def test_what_cannot_be_measured_says_why(arguments: tuple[str, ...], timeout_s: float, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        measured(job(*arguments), CPUS, 1.0, Effort(3, 0.0, timeout_s))


def test_a_program_that_there_is_not_says_so() -> None:
    missing = JobSpecification(JobName("main"), 1, TaskResources(gpus=1), Command(("/no/such/program",)))
    with pytest.raises(NotMeasured, match="could not start"):
        measured(missing, CPUS, 1.0, FEW)
