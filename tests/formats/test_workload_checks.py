from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import GpuModel, JobName, RegionId, TableId, TenantId
from domain.resources import TaskResources
from domain.workload import (
    Command,
    Emulated,
    EntryPoint,
    JobSpecification,
    PythonCallable,
    RetryPolicy,
    TableInput,
    WorkloadSpecification,
)
from formats.workload_checks import check_workload
from tests.formats.format_values import workloads

A100 = GpuModel("A100")
JOB = JobSpecification(JobName("main"), 2, TaskResources(8, A100), Emulated(600.0, 60.0))
WORKLOAD = WorkloadSpecification("w-1", TenantId("ads"), (JOB,))


def check(workload: WorkloadSpecification) -> dict[str, str]:
    found = check_workload(workload, {"ads", "vision"}, {"A100", "V100"}, {"clicks", "images"}, {"east", "west"})
    return {problem.field: problem.description for problem in found}


def with_job(**changes: object) -> WorkloadSpecification:
    return replace(WORKLOAD, jobs=(replace(JOB, **changes),))  # type: ignore[arg-type]  # wrong types are the point


def with_resources(**changes: object) -> WorkloadSpecification:
    return with_job(resources=JOB.resources._replace(**changes))  # type: ignore[arg-type]  # wrong types are the point


def test_accepts_what_is_right() -> None:
    assert check(WORKLOAD) == {}
    assert check(with_job(max_tasks=4)) == {}
    assert check(with_resources(gpu_model="any", cpus=0.5, memory_gib=0)) == {}
    assert check(with_resources(gpus=0, gpu_model="any", cpus=0.5, memory_gib=1)) == {}
    assert check(with_resources(gpus=0, gpu_model="", cpus=0.5, memory_gib=1)) == {}
    assert check(with_job(entry_point=PythonCallable("a.b:c.d"))) == {}


@given(workloads())
def test_never_refuses_a_workload_of_the_strategy(workload: WorkloadSpecification) -> None:
    assert check_workload(workload) == ()


@pytest.mark.parametrize("tasks", [0, -1, 100_001, True, 2.0, "2", None, math.nan])
def test_never_accepts_tasks_out_of_range(tasks: object) -> None:
    assert list(check(with_job(tasks=tasks))) == ["jobs[0].tasks"]


@pytest.mark.parametrize("max_tasks", [1, -1, 100_001, 3.5])
def test_never_accepts_max_tasks_out_of_range(max_tasks: object) -> None:
    assert list(check(with_job(max_tasks=max_tasks))) == ["jobs[0].max_tasks"]


@pytest.mark.parametrize("gpus", [-1, 63, 10**30, 1.0, "8"])
def test_never_accepts_gpus_out_of_range(gpus: object) -> None:
    assert list(check(with_resources(gpus=gpus))) == ["jobs[0].resources.gpus"]


@pytest.mark.parametrize("amount", [-1.0, math.nan, math.inf, -math.inf, 1e30, 10**400, "1", True])
@pytest.mark.parametrize("field", ["cpus", "memory_gib"])
def test_never_accepts_an_absurd_amount(field: str, amount: object) -> None:
    assert list(check(with_resources(**{field: amount}))) == [f"jobs[0].resources.{field}"]


def test_a_task_without_gpus_says_what_it_needs() -> None:
    assert check(with_resources(gpus=0, gpu_model="any")) == {
        "jobs[0].resources.cpus": "is missing; a task without GPUs must say how much it needs",
        "jobs[0].resources.memory_gib": "is missing; a task without GPUs must say how much it needs",
    }
    assert check(with_resources(gpus=0, gpu_model="any", cpus=0, memory_gib=0.0)) == {
        "jobs[0].resources.cpus": "must be more than 0 for a task without GPUs",
        "jobs[0].resources.memory_gib": "must be more than 0 for a task without GPUs",
    }
    assert list(check(with_resources(gpus=0, cpus=1, memory_gib=1))) == ["jobs[0].resources.gpu_model"]


def test_suggests_the_name_that_was_meant() -> None:
    workload = replace(
        with_resources(gpu_model="A10O"),
        tenant=TenantId("adds"),
        tables=(TableInput(TableId("clicks")), TableInput(TableId("image"))),
        regions=(RegionId("eas"), RegionId("mars")),
    )
    assert check(workload) == {
        "tenant": "there is no tenant adds; did you mean ads?",
        "jobs[0].resources.gpu_model": "there is no GPU model A10O; did you mean A100?",
        "tables[1].table": "there is no table image; did you mean images?",
        "regions[0]": "there is no region eas; did you mean east?",
        "regions[1]": "there is no region mars; known: east, west",
    }
    assert check_workload(workload) == ()


@pytest.mark.parametrize("name", ["", "a b", "-a", "a" * 129, "ä", "a\n", "a\0", "\ud800", 5, None])
def test_never_accepts_what_is_no_name(name: object) -> None:
    assert list(check(replace(WORKLOAD, name=name))) == ["name"]  # type: ignore[arg-type]  # wrong types are the point
    assert list(check(replace(WORKLOAD, tenant=name))) == ["tenant"]  # type: ignore[arg-type]  # wrong types are the point
    assert list(check(with_job(name=name))) == ["jobs[0].name"]


def test_the_jobs_must_be_a_gang_that_makes_sense() -> None:
    assert check(replace(WORKLOAD, jobs=())) == {"jobs": "is empty; a workload has at least one job"}
    assert check(replace(WORKLOAD, jobs=(JOB, JOB))) == {"jobs[1].name": "is already the name of jobs[0]; rename one"}
    many = tuple(replace(JOB, name=JobName(f"j{n}")) for n in range(101))
    assert check(replace(WORKLOAD, jobs=many)) == {"jobs": "are 101; at most 100 are possible"}
    huge = tuple(replace(JOB, name=JobName(f"j{n}"), tasks=60_000) for n in range(2))
    assert check(replace(WORKLOAD, jobs=huge)) == {"jobs": "have 120000 tasks together; at most 100000 are possible"}
    mixed = (JOB, replace(JOB, name=JobName("real"), entry_point=Command(("x",))))
    assert check(replace(WORKLOAD, jobs=mixed)) == {
        "jobs": "are partly emulated; either all jobs of a workload are, or none"
    }


@pytest.mark.parametrize(
    ("entry_point", "field"),
    [
        (Command(()), "jobs[0].command"),
        (Command(("",)), "jobs[0].command"),
        (Command(("a", "b\0")), "jobs[0].command[1]"),
        (Command(("a", "\udcff")), "jobs[0].command[1]"),
        (Command(("a",) * 1025), "jobs[0].command"),
        (Command(("a" * 70_000, "b" * 70_000)), "jobs[0].command"),
        (Command(("a" * 131_073,)), "jobs[0].command[0]"),
        (PythonCallable(""), "jobs[0].python"),
        (PythonCallable("module"), "jobs[0].python"),
        (PythonCallable("module:"), "jobs[0].python"),
        (PythonCallable("a b:c"), "jobs[0].python"),
        (PythonCallable("a:" + "b" * 600), "jobs[0].python"),
        (Emulated(0.0), "jobs[0].emulated.duration_s"),
        (Emulated(-1.0), "jobs[0].emulated.duration_s"),
        (Emulated(math.nan), "jobs[0].emulated.duration_s"),
        (Emulated(1e12), "jobs[0].emulated.duration_s"),
        (Emulated(10.0, math.inf), "jobs[0].emulated.checkpoint_interval_s"),
        (Emulated(10.0, -1.0), "jobs[0].emulated.checkpoint_interval_s"),
        (Emulated(1e6, 1e-3), "jobs[0].emulated.checkpoint_interval_s"),
        (None, "jobs[0]"),
    ],
    ids=range(20),
)
def test_never_accepts_a_bad_entry_point(entry_point: EntryPoint, field: str) -> None:
    assert list(check(with_job(entry_point=entry_point))) == [field]


@pytest.mark.parametrize(
    ("environment", "field"),
    [
        ((("1A", "x"),), "jobs[0].environment"),
        ((("", "x"),), "jobs[0].environment"),
        ((("A=B", "x"),), "jobs[0].environment"),
        ((("A", "x"), ("A", "y")), "jobs[0].environment"),
        ((("TOPMAST_ATTEMPT", "7"),), "jobs[0].environment"),
        ((("A", "x\0"),), "jobs[0].environment.A"),
        ((("A", "x" * 32_769),), "jobs[0].environment.A"),
        (tuple((f"A{n}", "") for n in range(257)), "jobs[0].environment"),
    ],
    ids=["digit first", "empty", "equals sign", "twice", "reserved", "NUL", "too long", "too many"],
)
def test_never_accepts_a_bad_environment(environment: tuple[tuple[str, str], ...], field: str) -> None:
    assert list(check(with_job(environment=environment))) == [field]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"labels": (("", "x"),)}, "labels"),
        ({"labels": (("a", "x"), ("a", "y"))}, "labels"),
        ({"labels": (("a", "x" * 1025),)}, "labels.a"),
        ({"labels": tuple((f"k{n}", "") for n in range(65))}, "labels"),
        ({"tables": (TableInput(TableId("clicks")), TableInput(TableId("clicks"), True))}, "tables[1].table"),
        ({"tables": (TableInput(TableId("clicks")),) * 1001}, "tables"),
        ({"tables": (TableInput(TableId("clicks"), max_age_s=-1.0),)}, "tables[0].max_age_s"),
        ({"tables": (TableInput(TableId("clicks"), max_age_s=math.nan),)}, "tables[0].max_age_s"),
        ({"tables": (TableInput(TableId("clicks"), True, 5.0),)}, "tables[0].max_age_s"),
        ({"tables": (TableInput(TableId("clicks"), newest_partitions=0),)}, "tables[0].newest_partitions"),
        ({"tables": (TableInput(TableId("clicks"), newest_partitions=2**31),)}, "tables[0].newest_partitions"),
        ({"regions": (RegionId("east"), RegionId("east"))}, "regions[1]"),
        ({"retry": RetryPolicy(-1)}, "retry.max_retries"),
        ({"retry": RetryPolicy(1001)}, "retry.max_retries"),
        ({"retry": RetryPolicy(1, math.nan)}, "retry.backoff_s"),
        ({"retry": RetryPolicy(1, 1.0, 1e9)}, "retry.backoff_cap_s"),
        ({"stop_grace_s": -0.1}, "stop_grace_s"),
        ({"stop_grace_s": 86_401.0}, "stop_grace_s"),
        ({"package": "../../secrets"}, "package"),
        ({"package": "A" * 64}, "package"),
    ],
    ids=range(20),
)
def test_never_accepts_bad_fields_of_the_workload(changes: dict[str, object], field: str) -> None:
    assert list(check(replace(WORKLOAD, **changes))) == [field]  # type: ignore[arg-type]  # checked by the test


@given(st.text(max_size=300), st.integers(), st.floats())
def test_never_raises(text: str, whole: int, number: float) -> None:
    job = replace(
        JOB,
        name=JobName(text),
        tasks=whole,
        max_tasks=whole,
        resources=TaskResources(whole, GpuModel(text), number, number),
        entry_point=Emulated(number, number),
        environment=((text, text),),
    )
    workload = WorkloadSpecification(
        text, TenantId(text), (job, job), (TableInput(TableId(text)),), (RegionId(text),), ((text, text),),
        RetryPolicy(whole, number, number), number,
    )  # fmt: skip
    found = check_workload(workload, {"a"}, {"b"}, {"c"}, {"d"})
    assert found
    assert all(problem.field and problem.description for problem in found)
