"""The sentences that problems are made of."""

from __future__ import annotations

import pytest

from formats.problems import listed, suggestion


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, ""), (1, "n0"), (3, "n0, n1, n2"), (4, "n0, n1, n2 and 1 more"), (9, "n0, n1, n2 and 6 more")],
)
def test_a_list_of_names_says_how_many_it_leaves_out(count: int, words: str) -> None:
    assert listed([f"n{number}" for number in range(count)], 3) == words


def test_a_name_like_no_other_is_answered_with_what_there_is() -> None:
    assert suggestion("mars", ["b", "a"], "region") == "known: a, b"
    assert suggestion("mars", [f"r{number:02}" for number in range(12)], "region").endswith("r08, r09 and 2 more")
    assert suggestion("mars", [], "region") == "there is no region at all"
