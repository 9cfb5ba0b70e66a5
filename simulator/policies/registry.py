"""Which policies there are: those of this package, and those that installed packages bring along.

A package brings a policy as an entry point of the group `topmast.policies`: its value is a `Policy`, or a function
without parameters that makes one (docs/policies.md has a worked example).
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from formats.problems import FieldProblem, FormatError, suggestion
from simulator.baselines import BASELINES
from simulator.policies.policy import Policy

ENTRY_POINT_GROUP = "topmast.policies"


def policies() -> dict[str, Policy]:
    """All policies by name, sorted. Raises FormatError for an entry point that brings none, or a name that is taken."""
    found = {policy.name: policy for policy in BASELINES}
    for entry_point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value)):
        policy = _policy_of(entry_point)
        if policy.name in found:
            raise _bad(entry_point, f"brings a policy {policy.name}, but there is one of that name; rename it")
        found[policy.name] = policy
    return dict(sorted(found.items()))


def policy_called(name: str, known: Mapping[str, Policy] | None = None) -> Policy:
    """The policy of that name; raises FormatError when there is none."""
    among = policies() if known is None else known
    if name not in among:
        raise FormatError("--policies", [FieldProblem(name, f"is no policy; {suggestion(name, among, 'policy')}")])
    return among[name]


def _policy_of(entry_point: EntryPoint) -> Policy:
    try:
        value: object = entry_point.load()
    except (ImportError, AttributeError) as error:
        raise _bad(entry_point, f"cannot be loaded: {error}") from error
    if callable(value) and not isinstance(value, Policy):
        value = value()
    if not isinstance(value, Policy):
        raise _bad(entry_point, f"brings a {type(value).__name__}; it must be a Policy or make one")
    return value


def _bad(entry_point: EntryPoint, description: str) -> FormatError:
    where = f"{entry_point.name} = {entry_point.value}"
    return FormatError(f"entry points of {ENTRY_POINT_GROUP}", [FieldProblem(where, description)])
