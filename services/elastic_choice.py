"""From the name in scheduler.yaml to the policy that says how many tasks elastic attempts of a service have (Lyra §5.2)."""

from __future__ import annotations

from collections.abc import Mapping

from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import NO_ELASTIC
from regional_scheduler.adjustment import ElasticPolicy


def elastic_policies() -> Mapping[str, ElasticPolicy]:
    """By the name of the policy that has it: those of Topmast, and those that installed packages bring.

    Raises FormatError for a package whose policy cannot be loaded.
    """
    # Only here: a service that resizes nothing starts without the simulator's policies.
    from simulator.policies.registry import policies

    return {name: policy.elastic for name, policy in policies().items() if policy.elastic is not None}


def elastic_policy(name: str, source: str = "scheduler.yaml") -> ElasticPolicy | None:
    """What resizes the attempts of a service; None for `none`. Raises FormatError for a policy that there is not, and for one
    that resizes nothing."""
    if name == NO_ELASTIC:
        return None
    from simulator.policies.registry import policies

    known = elastic_policies()
    if name in known:
        return known[name]
    hint = suggestion(name, {*known, NO_ELASTIC}, "policy")
    described = (
        f"{name} resizes nothing; use {', '.join(known)}, or none"
        if name in policies()
        else f"there is no policy {name} that resizes; {hint}"
    )
    raise FormatError(source, [FieldProblem("elastic", described)])
