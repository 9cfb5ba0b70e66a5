"""Which policies there are: those of this package, and those that installed packages bring along.

A package brings a policy as an entry point of the group `topmast.policies`: its value is a `Policy`, or a function
without parameters that makes one (docs/policies.md has a worked example).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from formats.plug_ins import plug_ins
from formats.problems import FieldProblem, FormatError, suggestion
from simulator.baselines import BASELINES
from simulator.policies.policy import Policy

ENTRY_POINT_GROUP = "topmast.policies"


def policies() -> dict[str, Policy]:
    """All policies by name, sorted. Raises FormatError for an entry point that brings none, or a name that is taken."""
    brought = plug_ins(ENTRY_POINT_GROUP, "Policy", _is_policy, [policy.name for policy in BASELINES])
    return {policy.name: policy for policy in sorted((*BASELINES, *brought), key=lambda policy: policy.name)}


def _is_policy(value: object) -> TypeGuard[Policy]:
    return isinstance(value, Policy)


def policy_called(name: str, known: Mapping[str, Policy] | None = None) -> Policy:
    """The policy of that name; raises FormatError when there is none."""
    among = policies() if known is None else known
    if name not in among:
        raise FormatError("--policies", [FieldProblem(name, f"is no policy; {suggestion(name, among, 'policy')}")])
    return among[name]
