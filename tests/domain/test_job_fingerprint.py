"""Which jobs are taken for the same by sensitivity profiles."""

import pytest

from domain.identifiers import JobName
from domain.job_fingerprint import job_fingerprint
from domain.resources import TaskResources
from domain.workload import Command, Emulated, EntryPoint, JobSpecification, PythonCallable


def job(entry_point: EntryPoint, *, gpus: int = 1, name: str = "main", tasks: int = 1) -> JobSpecification:
    return JobSpecification(JobName(name), tasks, TaskResources(gpus=gpus), entry_point)


TRAIN = ("python", "train.py", "--batch", "64")


@pytest.mark.parametrize(
    "arguments",
    [
        (*TRAIN, "--seed", "7"),
        (*TRAIN, "--seed=7", "--max_steps", "10"),
        ("python", "train.py", "--epochs", "3", "--batch", "64"),
        (*TRAIN, "--output-dir=/elsewhere", "--run-name", "again"),
    ],
)
def test_how_long_and_where_to_makes_no_difference(arguments: tuple[str, ...]) -> None:
    assert job_fingerprint(job(Command(arguments), name="other", tasks=4)) == job_fingerprint(job(Command(TRAIN)))


@pytest.mark.parametrize(
    "other",
    [
        job(Command(("python", "train.py", "--batch", "128"))),
        job(Command(TRAIN), gpus=2),
        job(Command((*TRAIN, "--seed", "--half"))),
        job(Command((*TRAIN, "7"))),
        job(PythonCallable("train:main")),
    ],
)
def test_what_an_iteration_does_makes_a_difference(other: JobSpecification) -> None:
    assert job_fingerprint(other) != job_fingerprint(job(Command(TRAIN)))


def test_the_model_is_part_of_it_and_emulated_jobs_have_none() -> None:
    assert job_fingerprint(job(Command(TRAIN)), "resnet") != job_fingerprint(job(Command(TRAIN)))
    assert job_fingerprint(job(Emulated(60.0))) is None
