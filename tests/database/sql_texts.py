"""Finds the SQL texts that modules execute, by reading their source: every value that such an argument can have."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from psycopg.sql import Composable

_EXECUTING_METHODS = {"execute", "copy"}
_EXECUTING_OBJECTS = {"connection", "cursor"}
_COPY = re.compile(r"COPY (?P<table>\w+) \((?P<columns>[^)]*)\)\s+FROM STDIN")
_COPY_OUT = re.compile(r"COPY \((?P<query>.*)\)\s+TO STDOUT", re.DOTALL)
_WHOLE_TABLES = re.compile(r"(TRUNCATE|ANALYZE) (?P<tables>[\w,\s]+)")
_PLACEHOLDER = re.compile(r"%\((?P<name>\w+)\)s|%s|%%")


class UnreadableText(Exception):
    """What is executed here cannot be known from the source: make it a constant, or a statement of SQLAlchemy Core."""


class SqlText(NamedTuple):
    """One text, as psycopg gets it, and where it stands."""

    place: str
    text: str


def texts_in(path: Path, root: Path) -> list[SqlText]:
    """All texts that the module at this path executes; `root` is the folder that its name is counted from."""
    name = ".".join(path.relative_to(root).with_suffix("").parts)
    return texts_of_source(path.read_text(), vars(importlib.import_module(name)), name)


def texts_of_source(source: str, known: Mapping[str, object], name: str) -> list[SqlText]:
    """All texts that this source executes; `known` holds what the module's names stand for."""
    tree = ast.parse(source)
    texts: list[SqlText] = []
    for function in _functions(tree):
        reader = _StringReader(tree, function, known, name)
        for call in ast.walk(function):
            if isinstance(call, ast.Call) and _executes(call):
                texts += [SqlText(f"{name}:{call.lineno}", text) for text in reader.values(call.args[0])]
    return texts


def prepared(text: str) -> str:
    """The text as a statement that PREPARE takes: its parameters numbered, a COPY as the query of what it fills or reads."""
    copied = _COPY.match(text.strip())
    if copied is not None:
        return f"SELECT {copied['columns']} FROM {copied['table']}"
    whole = _WHOLE_TABLES.fullmatch(text.strip())
    if whole is not None:
        return f"SELECT FROM {whole['tables']}"
    read = _COPY_OUT.match(text.strip())
    if read is not None:
        text = read["query"]
    numbers: dict[str, int] = {}

    def numbered(placeholder: re.Match[str]) -> str:
        if placeholder.group() == "%%":
            return "%"
        name = placeholder["name"] or f" {len(numbers)}"
        return f"${numbers.setdefault(name, len(numbers) + 1)}"

    return _PLACEHOLDER.sub(numbered, text)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods; a function within another one is part of that."""
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                yield member


def _executes(call: ast.Call) -> bool:
    method = call.func
    return (
        isinstance(method, ast.Attribute)
        and method.attr in _EXECUTING_METHODS
        and isinstance(method.value, ast.Name)
        and method.value.id in _EXECUTING_OBJECTS
    )


class _StringReader:
    """Reads the values that expressions in one function can have."""

    def __init__(
        self,
        tree: ast.Module,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        known: Mapping[str, object],
        module: str,
    ) -> None:
        self._tree = tree
        self._function = function
        self._known = known
        self._module = module

    def values(self, node: ast.expr) -> list[str]:
        """Every text that the expression can be."""
        try:
            value = eval(compile(ast.Expression(node), self._module, "eval"), dict(self._known))  # noqa: S307 - our code
        except NameError:
            return self._values_with_locals(node)
        if isinstance(value, Composable):
            return [value.as_string(None)]
        if not isinstance(value, str):
            raise UnreadableText(f"{self._module}:{node.lineno}: {ast.unparse(node)} is no text")
        return [value]

    def _values_with_locals(self, node: ast.expr) -> list[str]:
        match node:
            case ast.JoinedStr(values=parts):
                return ["".join(choice) for choice in itertools.product(*map(self.values, parts))]
            case ast.FormattedValue(value=value):
                return self.values(value)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return ["".join(choice) for choice in itertools.product(self.values(left), self.values(right))]
            case ast.IfExp(body=body, orelse=otherwise):
                return self.values(body) + self.values(otherwise)
            case ast.Name(id=name):
                found = self._values_of_local(name)
                if found:
                    return found
            case _:
                pass
        raise UnreadableText(f"{self._module}:{node.lineno}: {ast.unparse(node)}")

    def _values_of_local(self, name: str) -> list[str]:
        """What is assigned to a variable of the function, or passed as its argument in this module."""
        assigned = [
            value
            for node in ast.walk(self._function)
            if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]
            for value in self.values(node.value)
        ]
        arguments = [argument.arg for argument in self._function.args.args]
        if name not in arguments or not self._function.name.startswith("_"):
            return assigned
        place = arguments.index(name)
        passed: list[str] = []
        for caller in _functions(self._tree):
            reader = _StringReader(self._tree, caller, self._known, self._module)
            for call in ast.walk(caller):
                if isinstance(call, ast.Call) and ast.unparse(call.func) == self._function.name:
                    passed += reader.values(call.args[place])
        return assigned + passed
