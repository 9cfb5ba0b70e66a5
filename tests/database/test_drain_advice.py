"""What an operator is told to drain before a fleet without some machines can be applied."""

from __future__ import annotations

import pytest

from services.database.drain_advice import names_to_drain

PLACES = {
    **{f"e{n}": ("east", "east-a") for n in range(3)},
    **{f"f{n}": ("east", "east-b") for n in range(30)},
    "w0": ("west", "west-a"),
    "w1": ("west", "west-b"),
}


@pytest.mark.parametrize(
    ("busy", "going", "names"),
    [
        ({"e0"}, {"e0", "e1"}, ["e0"]),
        ({"e0", "e2"}, {"e0", "e1", "e2"}, ["east-a"]),
        ({"w0"}, {"w0", "w1"}, ["west"]),
        ({"w0", "e1", "f7"}, {"w0", "w1", "e0", "e1", "e2", "f7"}, ["west", "east-a", "f7"]),
        ({f"f{n}" for n in range(25)}, {f"f{n}" for n in range(29)}, ["east/east-b"]),
        ({"unknown"}, {"unknown"}, ["unknown"]),
    ],
)
def test_the_names_stand_for_all_that_is_busy_and_for_little_that_stays(
    busy: set[str], going: set[str], names: list[str]
) -> None:
    assert names_to_drain(busy, going, PLACES) == names
