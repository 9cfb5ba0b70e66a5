"""What installed packages bring along: values behind entry points, checked one by one.

A package names a value, or a function without parameters that makes one, under an entry point group. One broken package
stops the command with a message that names it: a fleet must not silently run without the policy that it was promised.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol, TypeGuard, TypeVar

from domain.identifiers import IDENTIFIER_PATTERN
from formats.problems import FieldProblem, FormatError, in_quotes

_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


class Named(Protocol):
    """Whatever can be plugged in has a name, by which commands and files choose it."""

    @property
    def name(self) -> str: ...


Plugged = TypeVar("Plugged", bound=Named)


def plug_ins(
    group: str, what: str, is_one: Callable[[object], TypeGuard[Plugged]], taken: Collection[str] = ()
) -> tuple[Plugged, ...]:
    """The values that installed packages bring under the group, sorted by entry point name.

    `what` they are in a word, for messages; `is_one` distinguishes them from everything else; `taken` are the names of what is
    built in. Raises FormatError, naming the entry point, when one cannot be loaded, brings something else, or takes a
    name that is taken.
    """
    found: list[Plugged] = []
    brought_by = dict.fromkeys(taken, "Topmast")
    for entry_point in sorted(entry_points(group=group), key=lambda point: (point.name, point.value)):
        value = _loaded(entry_point, what, is_one)
        if value.name in brought_by:
            other = f"there is one of that name, of {brought_by[value.name]}"
            raise _refused(entry_point, f"brings a {what} {value.name}, but {other}; rename it, or uninstall one")
        brought_by[value.name] = _package_of(entry_point)
        found.append(value)
    return tuple(found)


def _loaded(entry_point: EntryPoint, what: str, is_one: Callable[[object], TypeGuard[Plugged]]) -> Plugged:
    try:
        value: object = entry_point.load()
    except (Exception, SystemExit) as error:
        # Whatever a package's own code raises while it is imported.
        problem = str(error) if isinstance(error, ImportError | AttributeError) else f"{type(error).__name__}: {error}"
        raise _refused(entry_point, f"cannot be loaded: {problem}") from error
    # A class has the attributes of its values without being one: it is called, like a function that makes one.
    if callable(value) and (isinstance(value, type) or not is_one(value)):
        try:
            value = value()
        except (Exception, SystemExit) as error:
            problem = f"{type(error).__name__}: {error}"
            raise _refused(entry_point, f"should make a {what} without arguments, but failed: {problem}") from error
    if not is_one(value):
        raise _refused(entry_point, f"brings a {type(value).__name__}; it must be a {what} or make one")
    if not (isinstance(value.name, str) and _is_name(value.name)):
        raise _refused(
            entry_point,
            f"brings a {what} called {in_quotes(value.name)}; files can only name 1 to 128 letters, digits or . _ : / -",
        )
    return value


def _refused(entry_point: EntryPoint, description: str) -> FormatError:
    where = f"{entry_point.name} = {entry_point.value} ({_package_of(entry_point)})"
    return FormatError(f"entry points of {entry_point.group}", [FieldProblem(where, description)])


def _package_of(entry_point: EntryPoint) -> str:
    """The package that brings it."""
    return "a package without a name" if entry_point.dist is None else f"package {entry_point.dist.name}"
