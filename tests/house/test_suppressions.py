"""A check is switched off for one rule, on one line, with a reason."""

import io
import re
import tokenize
from collections.abc import Iterator

from tests.house.repository import python_files, text

_NOQA = re.compile(r"#\s*noqa\b(?P<codes>:\s*[A-Z]+[0-9]+(?:\s*,\s*[A-Z]+[0-9]+)*)?(?P<reason>.*)", re.IGNORECASE)
_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore(?P<codes>\[[a-z, -]+\])?(?P<reason>.*)")
_FILE_WIDE = re.compile(r"#\s*(?:ruff|flake8|mypy|pyright):\s*(?:noqa|ignore-errors|disable|basic|strict=)")


def test_every_suppression_names_its_rule_and_reason() -> None:
    modules = python_files()
    assert len(modules) > 30
    found = [f"{path}:{line}: {why}" for path in modules for line, why in _bad_suppressions(text(path))]
    assert not found, "\n" + "\n".join(found)


def test_bad_suppressions_are_noticed() -> None:
    assert [why for _, why in _bad_suppressions("import os  # noqa\n")] == ["noqa without a rule"]
    assert [why for _, why in _bad_suppressions("import os  # noqa: F401\n")] == ["noqa without a reason"]
    assert [why for _, why in _bad_suppressions("x = 1  # type: ignore\n")] == ["type: ignore without a rule"]
    assert [why for _, why in _bad_suppressions("x = 1  # type: ignore[misc]\n")] == ["type: ignore without a reason"]
    assert [why for _, why in _bad_suppressions("# ruff: noqa\n")] == ["switches a check off for a whole file"]


def test_good_suppressions_pass() -> None:
    good = "import os  # noqa: F401 -- imported for its effect\nx = f()  # type: ignore[misc]  # untyped decorator\n"
    assert list(_bad_suppressions(good)) == []
    assert list(_bad_suppressions("text = '# noqa'\n")) == []


def _bad_suppressions(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if _FILE_WIDE.search(token.string):
            yield token.start[0], "switches a check off for a whole file"
            continue
        for name, pattern in (("noqa", _NOQA), ("type: ignore", _TYPE_IGNORE)):
            match = pattern.search(token.string)
            if match is None:
                continue
            if match["codes"] is None:
                yield token.start[0], f"{name} without a rule"
            elif len(re.findall(r"\w{2,}", match["reason"])) < 2:
                yield token.start[0], f"{name} without a reason"
