"""Bad values come through as they are, for the checks to report; only what has no value in the domain raises."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import ANY_GPU_MODEL
from domain.workload import Command, RetryPolicy
from services.wire.malformed_message import MalformedMessage
from services.wire.workloads import placement_from_proto, specification_from_proto
from tests.wire.domain_values import int32s, texts
from topmast.v1 import workload_pb2

any_number = st.floats()

messages = st.builds(
    workload_pb2.WorkloadSpecification,
    name=texts,
    tenant=texts,
    jobs=st.lists(
        st.builds(
            workload_pb2.JobSpecification,
            name=texts,
            tasks=int32s,
            max_tasks=int32s,
            resources=st.none()
            | st.builds(
                workload_pb2.TaskResources,
                gpus=int32s,
                gpu_model=texts,
                cpus=st.none() | any_number,
                memory_gib=st.none() | any_number,
            ),
            emulated=st.builds(workload_pb2.Emulated, duration_s=any_number, checkpoint_interval_s=any_number),
            environment=st.dictionaries(texts, texts, max_size=2),
        ),
        max_size=3,
    ),
    retry=st.none()
    | st.builds(workload_pb2.RetryPolicy, max_retries=int32s, backoff_s=any_number, backoff_cap_s=any_number),
    stop_grace_s=st.none() | any_number,
)


@given(messages)
def test_never_raises_on_bad_values(message: workload_pb2.WorkloadSpecification) -> None:
    specification = specification_from_proto(message)
    assert len(specification.jobs) == len(message.jobs)
    for job, said in zip(specification.jobs, message.jobs, strict=True):
        assert (job.tasks, job.max_tasks, job.resources.gpus) == (said.tasks, said.max_tasks, said.resources.gpus)


def _job(**fields: object) -> workload_pb2.JobSpecification:
    job = workload_pb2.JobSpecification(name="train", tasks=1)
    job.command.arguments.append("train.py")
    for name, value in fields.items():
        setattr(job, name, value)
    return job


def test_what_is_not_set_gets_the_documented_default() -> None:
    specification = specification_from_proto(workload_pb2.WorkloadSpecification(jobs=[_job()]))
    (job,) = specification.jobs
    assert job.resources.gpu_model == ANY_GPU_MODEL
    assert job.resources.cpus is None
    assert job.resources.memory_gib is None
    assert (job.max_tasks, job.greatest_tasks) == (0, 1)
    assert specification.retry == RetryPolicy()
    assert specification.stop_grace_s == 30.0


def test_a_retry_without_waits_gets_the_documented_ones() -> None:
    message = workload_pb2.WorkloadSpecification(jobs=[_job()], retry=workload_pb2.RetryPolicy(max_retries=3))
    assert specification_from_proto(message).retry == RetryPolicy(3, 10.0, 600.0)


def test_zero_that_was_said_is_not_a_default() -> None:
    job = _job()
    job.resources.cpus = 0.0
    message = workload_pb2.WorkloadSpecification(jobs=[job], stop_grace_s=0.0)
    specification = specification_from_proto(message)
    assert specification.stop_grace_s == 0.0
    assert specification.jobs[0].resources.cpus == 0.0


def test_maps_arrive_sorted() -> None:
    job = _job()
    job.environment.update({"b": "2", "a": "1", "c": "3"})
    message = workload_pb2.WorkloadSpecification(jobs=[job], labels={"z": "1", "y": "2"})
    specification = specification_from_proto(message)
    assert specification.jobs[0].environment == (("a", "1"), ("b", "2"), ("c", "3"))
    assert specification.labels == (("y", "2"), ("z", "1"))


def test_an_empty_command_stays_visible() -> None:
    job = workload_pb2.JobSpecification(name="train", command=workload_pb2.Command())
    assert specification_from_proto(workload_pb2.WorkloadSpecification(jobs=[job])).jobs[0].entry_point == Command(())


def test_every_job_without_entry_point_is_named() -> None:
    bare = workload_pb2.JobSpecification(name="train", tasks=1)
    message = workload_pb2.WorkloadSpecification(jobs=[_job(), bare, bare])
    with pytest.raises(MalformedMessage) as refused:
        specification_from_proto(message)
    assert [problem.field for problem in refused.value.problems] == ["jobs[1].entry_point", "jobs[2].entry_point"]
    outer = refused.value.under("specification")
    assert outer.problems[0].field == "specification.jobs[1].entry_point"
    assert "set command, python or emulated" in str(outer)


@pytest.mark.parametrize("field", ["cpus", "memory_gib"])
@pytest.mark.parametrize("amount", [math.nan, math.inf, -math.inf])
def test_a_placement_without_finite_amounts_is_refused(field: str, amount: float) -> None:
    message = workload_pb2.TaskPlacement(job="train", **{field: amount})  # type: ignore[arg-type]  # one of two floats
    with pytest.raises(MalformedMessage, match=field):
        placement_from_proto(message)
