import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from formats.problems import FormatError
from formats.scheduler_file import (
    Estimates,
    EstimatesSection,
    PlacementSection,
    Priorities,
    PrioritySection,
    ReservationsSection,
    parse_scheduler_file,
)
from formats.schema import Schema


class File(Schema):
    """The sections of this module, as a whole file."""

    priorities: Priorities = Field(default_factory=dict)
    estimates: Estimates = None
    placement: PlacementSection = PlacementSection()
    reservations: ReservationsSection = ReservationsSection()


def test_an_empty_file_is_all_defaults() -> None:
    for text in ("", "# nothing\n", "{}"):
        assert parse_scheduler_file(text, File) == File()


def test_priorities_are_numbers_and_may_be_in_quotes() -> None:
    file = parse_scheduler_file("priorities: {0: {ordering: fifo}, '3': {ordering: las}}", File)
    assert file.priorities == {0: PrioritySection(ordering="fifo"), 3: PrioritySection(ordering="las")}


@given(st.dictionaries(st.integers(0, 6), st.sampled_from(("credit", "fifo", "las"))), st.none() | st.floats(1.0, 1e6))
def test_a_file_survives_json(orderings: dict[int, str], assumed_run_s: float | None) -> None:
    file = File(
        priorities={number: PrioritySection(ordering=name) for number, name in orderings.items()},
        estimates=None if assumed_run_s is None else EstimatesSection(assumed_run_s=assumed_run_s),
    )
    assert parse_scheduler_file(file.model_dump_json(), File) == file


def test_packlimit_is_a_number_or_auto() -> None:
    assert parse_scheduler_file("placement: {packlimit: 0.5}", File).placement.packlimit == 0.5
    assert parse_scheduler_file("placement: {packlimit: auto}", File).placement.packlimit is None
    assert parse_scheduler_file("placement: {}", File).placement.packlimit is None


def test_estimates_may_just_be_switched_on() -> None:
    assert parse_scheduler_file("estimates: true", File).estimates == EstimatesSection()
    assert parse_scheduler_file("estimates: false", File).estimates is None
    assert parse_scheduler_file("estimates: {assumed_run_s: 60}", File).estimates == EstimatesSection(assumed_run_s=60)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("priorities: {7: {}}", r"scheduler.yaml: priorities"),
        ("priorities: {first: {}}", r"priorities.*first"),
        ("priorities: {3: {order: fifo}}", r"order: is not a field that exists here; did you mean ordering\?"),
        ("priorities: {3: {levels: {thresholds_gpu_s: [0]}}}", "thresholds_gpu_s.*greater than 0"),
        ("priorities: {3: {}, 3: {}}", "the key '3' is there twice"),
        ("priorities: {2: {}, 0x2: {}}", "the key '0x2' must be a plain whole number, such as 2"),
        ("priorities: {2: {}, +2: {}}", r"the key '\+2' must be a plain whole number"),
        ("priorities: {2: {}, '02': {}}", r"priorities.02 \(a key\)"),
        ("priorities: {}\n---\npriorities: {2: {ordering: fifo}}", "has 2 documents separated by '---'; put all"),
        ("estimates: {assumed_run_s: -1}", "assumed_run_s: must be greater than 0"),
        ("estimates: [1]", "estimates: must be a mapping"),
        ("placement: {packlimit: 1.5}", "placement.packlimit: must be auto, learnt, or a number from 0 to 1, not 1.5"),
        (
            "placement: {packlimit: never}",
            "placement.packlimit: must be auto, learnt, or a number from 0 to 1, not 'never'",
        ),
        ("placement: {packlimits: 0.5}", r"did you mean packlimit\?"),
        ("reservations: {after_s: -1}", r"reservations.after_s: must be at least 0.0, not -1"),
        ("reservations: {at_most: 2.5}", r"reservations.at_most: must be a whole number, not 2.5"),
        ("reservations: {look_every_s: 0}", r"reservations.look_every_s: must be greater than 0.0, not 0"),
        (
            "reservations: {priorities: {9: {after_s: 5}}}",
            r"reservations.priorities\[9\] \(a key\): must be at most 6, not 9",
        ),
        (
            "reservations: {after_s: 1e9}",
            "reservations.after_s: must be a number, not '1e9': with an exponent YAML wants a point and a sign as well",
        ),
        ("5: {}", "scheduler.yaml"),
        ("priorities: 3", "priorities: must be a mapping"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse_scheduler_file(text, File)
