"""Are these dependencies well formed? Whether the workloads exist that they name, only the service knows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from domain.dependencies import ENDS_OF_CONDITIONS, Dependency
from domain.identifiers import IDENTIFIER_PATTERN
from formats.problems import FieldProblem, in_quotes, suggestion

GREATEST_DEPENDENCIES = 1_000

_is_name = re.compile(IDENTIFIER_PATTERN).fullmatch


def check_dependencies(after: Sequence[Dependency]) -> list[FieldProblem]:
    """Every problem, by its place in the list."""
    if len(after) > GREATEST_DEPENDENCIES:
        return [FieldProblem("after", f"are {len(after)}; at most {GREATEST_DEPENDENCIES} are possible")]
    problems: list[FieldProblem] = []
    first_place: dict[str, int] = {}
    for index, dependency in enumerate(after):
        path = f"after[{index}]"
        described = _described(dependency)
        if described:
            problems.append(FieldProblem(path, described))
        elif (first := first_place.setdefault(dependency.workload, index)) != index:
            problems.append(FieldProblem(path, f"names {dependency.workload} again, as after[{first}]; keep one"))
    return problems


def _described(dependency: Dependency) -> str:
    """What is wrong with it; "" for nothing."""
    found = in_quotes(str(dependency))
    if not dependency.condition:
        return f"is {found}; say what is to become of it: ok:ID, failed:ID or any:ID"
    if dependency.condition not in ENDS_OF_CONDITIONS:
        hint = suggestion(dependency.condition, ENDS_OF_CONDITIONS, "condition")
        return f"is {found}; it must begin with one of {', '.join(ENDS_OF_CONDITIONS)}; {hint}"
    if not _is_name(dependency.workload):
        return f"is {found}; behind the colon must stand the id of a workload, or the name of one that is submitted with it"
    return ""
