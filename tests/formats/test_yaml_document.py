from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.problems import FormatError
from formats.yaml_document import DEEPEST_NESTING, dump_document, load_document, load_documents


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.yaml: is empty; exactly one is expected"),
        ("a: 1\n---\nb: 2", "x.yaml: has 2 documents separated by '---'; exactly one is expected"),
        ("a: [1", "x.yaml: line 2, column 1: is not valid YAML: did not find expected ',' or ']'"),
        ("a: 1\nb: 2\na: 3", "x.yaml: line 3, column 1: the key 'a' is there twice"),
        ("a: &x [1]\nb: *x", "x.yaml: line 1, column 4: is used again by an alias (*name); write it out instead"),
        ("1: a", "x.yaml: line 1, column 1: the key '1' must be text; put it in quotes"),
        ("yes: a", "x.yaml: line 1, column 1: the key 'yes' must be text; put it in quotes"),
        ("? [a]\n: b", "x.yaml: line 1, column 3: the key a list or mapping must be text; put it in quotes"),
        ("[" * 100_000, f"x.yaml: line 1, column {DEEPEST_NESTING + 1}: is nested deeper than 64 levels"),
        ("a: 2026-99-99", "x.yaml: is not valid YAML: month must be in 1..12"),
        ("a: \x07", "x.yaml: is not valid YAML: unacceptable character #x0007"),
        ("a: !!python/object:os.system x", "x.yaml: line 1, column 4: is not valid YAML: could not determine"),
        ("a: !x y", "x.yaml: line 1, column 4: is not valid YAML: could not determine a constructor for the tag '!x'"),
        ("a: " + "9" * 5000, "x.yaml: is not valid YAML: Exceeds the limit"),
    ],
    ids=[
        "empty", "two documents", "syntax", "key twice", "alias", "number as key", "boolean as key", "list as key",
        "deep nesting", "no such date", "control character", "python object", "unknown tag", "endless number",
    ],
)  # fmt: skip
def test_refuses_with_the_place_and_a_remedy(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        load_document(text, "x.yaml")
    assert str(caught.value).startswith(message)


def test_reads_several_documents() -> None:
    assert load_documents("a: 1\n---\n- b\n", "x.yaml") == [{"a": 1}, ["b"]]


def test_a_large_alias_bomb_does_not_go_off() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(FormatError, match="alias"):
        load_document("\n".join(lines), "x.yaml")


@given(st.text(max_size=200))
def test_never_fails_in_another_way(text: str) -> None:
    with contextlib.suppress(FormatError):
        load_documents(text, "x.yaml")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text(st.characters(categories=["L"])),
        lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(st.characters(categories=["L"])), values),
        max_leaves=10,
    )
)
def test_a_document_survives_being_written_and_read(document: object) -> None:
    assert load_document(dump_document(document), "x.yaml") == document


@pytest.mark.parametrize("text", ["\x85", "a\u2028b", "x\u2029", " \x85 ", "\ufeff", "\r", "plain"])
def test_text_with_any_kind_of_line_break_survives_being_written_and_read(text: str) -> None:
    assert load_documents(dump_document({"text": text}), "a test") == [{"text": text}]
