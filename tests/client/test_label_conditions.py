"""Conditions on labels as people write them."""

from __future__ import annotations

import pytest

from topmast import InvalidArgumentError
from topmast.label_conditions import label_condition, label_conditions


@pytest.mark.parametrize(
    ("text", "key", "value", "excludes"),
    [
        ("sweep=a", "sweep", "a", False),
        ("sweep==a", "sweep", "a", False),
        ("sweep=", "sweep", "", False),
        ("sweep=a=b", "sweep", "a=b", False),
        ("sweep!=a", "sweep", "a", True),
        ("sweep", "sweep", None, False),
        ("!sweep", "sweep", None, True),
    ],
)
def test_a_condition_says_what_the_labels_have_to_be(text: str, key: str, value: str | None, excludes: bool) -> None:
    one = label_condition(text)
    assert (one.key, one.value if one.HasField("value") else None, one.excludes) == (key, value, excludes)


@pytest.mark.parametrize("text", ["", "=a", "!=a", "!", "!!a", "a!b", "!a=b"])
def test_what_is_none_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="write key=value, key!=value, key or !key"):
        label_condition(text)


def test_one_text_is_no_list() -> None:
    with pytest.raises(InvalidArgumentError, match="labels: must be a list of strings"):
        label_conditions("sweep=a")


def test_what_is_wrong_is_named_by_its_place() -> None:
    with pytest.raises(InvalidArgumentError, match=r"labels\[1\]: '' is no condition on a label"):
        label_conditions(["sweep=a", ""])
