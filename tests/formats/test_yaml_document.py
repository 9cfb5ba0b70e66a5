from __future__ import annotations

import contextlib
import datetime as dt

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from formats.plain_yaml import plain_documents
from formats.problems import FormatError
from formats.yaml_document import DEEPEST_NESTING, documents_by_nodes, dump_document, load_document, load_documents


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


_PIECES = (
    "a", "b", "key", "<<", "=", "1", "2.5", "1e5", "0x1f", "yes", "null", "~", "2026-01-02", "x y", "é", ".inf",
    ": ", ":", "- ", "-", ", ", "[", "]", "{", "}", '"', "'", "&x ", "*x", "!", "!!str ", "!!set ", "? ", "| ", "> ", "#",
    "\n", "\n  ", "\n    ", "---\n", "...\n", "%YAML 1.1\n", "\t",
)  # fmt: skip


@given(st.lists(st.sampled_from(_PIECES), max_size=14).map("".join))
@example("a: [1, {b: 2.5, c: 'x'}, 2026-01-02]\nd: yes\ne: ~\nf: |\n  text\n---\n'5'\n")
@example("- {a: 1, a: 2}")
@example("a: &x 1\nb: 1")
def test_what_is_read_without_nodes_is_what_nodes_say(text: str) -> None:
    plain = plain_documents(text, yaml.SafeLoader, DEEPEST_NESTING)
    if plain is not None:
        assert repr(plain) == repr(documents_by_nodes(text, "x.yaml"))


def test_what_is_plain_is_read_without_nodes() -> None:
    text = 'a: [1, {b: 2.5, c: \'x\'}, 2026-01-02]\nd: yes\n---\n{"a": ["1", 1.0, true, null]}\n'
    assert plain_documents(text, yaml.SafeLoader, DEEPEST_NESTING) == [
        {"a": [1, {"b": 2.5, "c": "x"}, dt.date(2026, 1, 2)], "d": True},
        {"a": ["1", 1.0, True, None]},
    ]
    assert plain_documents("[" * 64 + "]" * 64, yaml.SafeLoader, DEEPEST_NESTING) is not None
    assert plain_documents("[" * 65 + "]" * 65, yaml.SafeLoader, DEEPEST_NESTING) is None


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
