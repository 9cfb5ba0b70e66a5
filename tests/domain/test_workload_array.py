"""Arrays: what is written, which elements there are, and that never more are active than may be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.identifiers import WorkloadId
from domain.workload_array import (
    GREATEST_INDEX,
    BadArray,
    WorkloadArray,
    array_environment,
    element_name,
    element_of,
    elements_due,
    name_of_written,
    parse_array,
)


@pytest.mark.parametrize(
    ("written", "indices", "at_most"),
    [
        ("7", [7], None),
        ("0-3", [0, 1, 2, 3], None),
        ("0-15:4", [0, 4, 8, 12], None),
        ("7,1,3", [1, 3, 7], None),
        ("0-2,8-9:1,5%2", [0, 1, 2, 5, 8, 9], 2),
    ],
)
def test_what_is_written_names_the_elements(written: str, indices: list[int], at_most: int | None) -> None:
    array = parse_array(written)
    assert list(array.indices) == indices
    assert array.at_most == at_most
    assert (array.size, array.least, array.greatest) == (len(indices), indices[0], indices[-1])


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("5-3", "goes backwards; write 3-5"),
        ("0-9%0", "1 or more"),
        ("0-9%", "1 or more"),
        ("0-9%x", "1 or more"),
        ("a-b", "no index and no range"),
        ("0-1e9", "no index and no range"),
        ("-1", "no index and no range"),
        ("0-", "no index and no range"),
        ("1,,2", "no index and no range"),
        ("0-9:0", "a step is 1 or more"),
        ("1,1", "names index 1 twice"),
        ("0-5,3", "names index 3 twice"),
        ("0-1000000000", "greatest possible one is 999999"),
        ("0-20000", "at most 20,000"),
        ("0-99999999999999999999999", "no index and no range"),
    ],
)
def test_what_names_no_elements_is_refused_with_the_remedy(written: str, words: str) -> None:
    with pytest.raises(BadArray, match=words):
        parse_array(written)


@given(st.lists(st.integers(0, GREATEST_INDEX), unique=True, min_size=1, max_size=30))
def test_each_element_has_a_name_of_its_own_and_names_sort_as_indices(indices: list[int]) -> None:
    array = WorkloadId("w0abc")
    names = [element_name(array, index) for index in sorted(indices)]
    assert names == sorted(set(names))
    assert [element_of(name) for name in names] == [(array, index) for index in sorted(indices)]
    assert [name_of_written(f"{array}[{index}]") for index in sorted(indices)] == names


def test_other_names_stay_what_they_are() -> None:
    for name in ("w0abc", "w0abc[x]", "w0abc[7]x", "[7]", "w0abc[1234567]"):
        assert name_of_written(name) == name
    assert element_of(WorkloadId("w0abc")) is None


def test_tasks_know_their_array() -> None:
    assert array_environment(WorkloadId("w0abc-000008"), "4-12:4%2") == {
        "TOPMAST_ARRAY_ID": "w0abc",
        "TOPMAST_ARRAY_INDEX": "8",
        "TOPMAST_ARRAY_SIZE": "3",
        "TOPMAST_ARRAY_MIN": "4",
        "TOPMAST_ARRAY_MAX": "12",
    }
    assert array_environment(WorkloadId("w0abc-000008"), "") == {}
    assert array_environment(WorkloadId("w0abc"), "0-3") == {}


@given(
    at_most=st.integers(1, 8),
    size=st.integers(0, 30),
    course=st.lists(st.tuples(st.sampled_from(["end", "hold", "release", "sweep"]), st.integers(0, 29)), max_size=80),
)
def test_never_more_are_active_than_may_be_and_all_get_their_turn(
    at_most: int, size: int, course: list[tuple[str, int]]
) -> None:
    """Whatever ends, is held (and gives its turn up) or released (and waits for one) in between."""
    waiting = [element_name(WorkloadId("w"), index) for index in range(size)]
    active: list[WorkloadId] = []
    held: list[WorkloadId] = []

    def sweep() -> None:
        due = list(elements_due(at_most, len(active), waiting))
        assert due == waiting[: len(due)]
        del waiting[: len(due)]
        active.extend(due)
        assert len(active) <= at_most
        assert len(active) == at_most or not waiting

    for happening, which in course:
        match happening:
            case "end" if active:
                active.pop(which % len(active))
            case "hold" if active:
                held.append(active.pop(which % len(active)))
            case "release" if held:
                waiting.append(held.pop(which % len(held)))
                waiting.sort()
            case "sweep":
                sweep()
            case _:
                pass
        assert len(active) <= at_most
    waiting.extend(held)
    while waiting:
        active.clear()
        sweep()


def test_an_array_is_a_value() -> None:
    assert parse_array("0-9%2") == WorkloadArray((range(10),), 2)
