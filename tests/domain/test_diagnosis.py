"""Diagnoses: which one comes closest, what a remembered one says, and their form in logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason, closest, known_to_fail
from domain.identifiers import ClusterId, JobName, RegionId, TableId

EAST, WEST = RegionId("east"), RegionId("west")

FULL = Diagnosis(
    Reason.NO_ROOM,
    EAST,
    ClusterId("e1"),
    JobName("train"),
    numbers=(Numbers(Quantity.TASKS, 8, 3),),
    since_s=100.0,
)

REASONS = {
    Reason.REGION_NOT_ALLOWED: "region_not_allowed",
    Reason.NO_SUCH_GPU_MODEL: "no_such_gpu_model",
    Reason.TASK_TOO_LARGE: "task_too_large",
    Reason.TOO_MANY_TASKS: "too_many_tasks",
    Reason.TOPOLOGY: "topology",
    Reason.JOBS_DO_NOT_FIT_TOGETHER: "jobs_do_not_fit_together",
    Reason.NO_DATA: "no_data",
    Reason.NO_MACHINE_FITS: "no_machine_fits",
    Reason.CLUSTERS_TOO_SMALL: "clusters_too_small",
    Reason.NO_ROOM_TOGETHER: "no_room_together",
    Reason.KNOWN_TO_FAIL: "known_to_fail",
    Reason.NO_ROOM: "no_room",
    Reason.HELD_FOR_OTHERS: "held_for_others",
    Reason.PLANNING_FAILED: "planning_failed",
    Reason.NO_ANSWER: "no_answer",
}


def test_reasons_keep_the_values_that_stand_in_logs_and_ascend_from_lasting_to_passing() -> None:
    assert {reason: reason.value for reason in Reason} == REASONS
    assert list(Reason) == list(REASONS)


def test_the_record_names_what_applies_and_nothing_else() -> None:
    assert FULL.as_json() == {
        "reason": "no_room",
        "region": "east",
        "cluster": "e1",
        "job": "train",
        "since_s": 100.0,
        "numbers": {"tasks": {"asked": 8, "available": 3}},
    }
    assert Diagnosis(Reason.NO_ANSWER).as_json() == {"reason": "no_answer"}
    data = Diagnosis(Reason.NO_DATA, EAST, field="tables", tables=(TableId("clicks"),))
    assert data.as_json() == {"reason": "no_data", "region": "east", "field": "tables", "tables": ["clicks"]}


@pytest.mark.parametrize(("lasting", "passing"), list(zip(list(Reason)[:-1], list(Reason)[1:], strict=True)))
def test_the_most_passing_reason_is_the_closest(lasting: Reason, passing: Reason) -> None:
    near, far = Diagnosis(passing, WEST), Diagnosis(lasting, EAST, numbers=(Numbers(Quantity.GPUS, 8, 7),))
    assert closest([far, near]) == near


def test_of_the_same_reason_the_smaller_missing_part_is_closer_and_then_the_name() -> None:
    def short(region: RegionId, asked: float, available: float) -> Diagnosis:
        return Diagnosis(Reason.NO_ROOM, region, numbers=(Numbers(Quantity.TASKS, asked, available),))

    assert closest([short(EAST, 8, 3), short(WEST, 8, 5)]) == short(WEST, 8, 5)
    assert closest([short(WEST, 8, 3), short(EAST, 8, 3)]) == short(EAST, 8, 3)
    assert closest([Diagnosis(Reason.NO_ROOM, EAST), short(WEST, 8, 0.1)]) == short(WEST, 8, 0.1)
    assert closest([]) is None


@pytest.mark.parametrize(
    ("asked", "available", "share"), [(8, 2, 0.75), (8, 8, 0.0), (8, 16, 0.0), (0, 0, 0.0), (2.5, 0, 1.0)]
)
def test_the_missing_share_is_part_of_what_is_asked(asked: float, available: float, share: float) -> None:
    assert Numbers(Quantity.CPUS, asked, available).missing_share == share


@given(st.permutations([Diagnosis(reason, region) for reason in Reason for region in (EAST, WEST)]))
def test_never_depends_on_the_order_which_is_closest(shuffled: list[Diagnosis]) -> None:
    assert closest(shuffled) == Diagnosis(Reason.NO_ANSWER, EAST)


def test_what_a_smaller_job_did_not_find_keeps_its_own_numbers() -> None:
    told = known_to_fail(FULL, JobName("evaluate"))
    assert told == Diagnosis(
        Reason.KNOWN_TO_FAIL,
        EAST,
        ClusterId("e1"),
        JobName("evaluate"),
        numbers=FULL.numbers,
        since_s=100.0,
    )
