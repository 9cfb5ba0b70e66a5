"""Size is ratcheted, tests included: what is larger than the limits is listed, and the list may only shrink."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.repository import python_files, text, tree

MODULE_LINES = 500
FUNCTION_LINES = 60

ALLOWED_LARGER: dict[str, int] = {}
"""`path` or `path::qualified name` -> its lines today. Lower a number when it shrinks, never add or raise one."""


def test_everything_is_within_the_limits_or_listed() -> None:
    sizes = dict(_sizes())
    assert len(sizes) > 100, "the walk found next to nothing: is it looking in the right place?"
    too_large = {name: lines for name, lines in sizes.items() if lines > ALLOWED_LARGER.get(name, _limit(name))}
    assert not too_large, f"larger than {MODULE_LINES} lines a module, {FUNCTION_LINES} a function: {too_large}"


def test_the_list_only_shrinks() -> None:
    sizes = dict(_sizes())
    loose = {name: lines for name, lines in ALLOWED_LARGER.items() if sizes.get(name) != lines or lines <= _limit(name)}
    assert not loose, f"these have shrunk or gone; lower or remove their numbers: {loose}"


def test_the_measure_counts_modules_and_nested_functions() -> None:
    source = "class Outer:\n    def method(self):\n        def inner():\n            return 1\n        return inner\n"
    assert dict(_function_sizes(ast.parse(source), "")) == {"Outer.method": 4, "Outer.method.inner": 2}


def _sizes() -> Iterator[tuple[str, int]]:
    for path in python_files():
        yield path.as_posix(), len(text(path).splitlines())
        for name, lines in _function_sizes(tree(path), ""):
            yield f"{path.as_posix()}::{name}", lines


def _function_sizes(node: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if not isinstance(child, ast.ClassDef) and child.end_lineno is not None:
                # A signature counts as one line: that of a command is a table of its options.
                yield name, child.end_lineno - child.body[0].lineno + 2
            yield from _function_sizes(child, f"{name}.")
        else:
            yield from _function_sizes(child, prefix)


def _limit(name: str) -> int:
    return FUNCTION_LINES if "::" in name else MODULE_LINES


def test_generated_code_is_not_counted() -> None:
    assert not any(path.is_relative_to(Path("topmast/v1")) for path in python_files())
