"""From the name in scheduler.yaml to the policy that says how many tasks elastic attempts of a service have (Lyra §5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from formats.problems import FieldProblem, FormatError, suggestion
from formats.scheduler_file import NO_ELASTIC
from regional_scheduler.adjustment import ElasticPolicy
from regional_scheduler.elastic.lyra import LyraElastic


def elastic_policies() -> Mapping[str, ElasticPolicy]:
    """By the name of the policy that has it: those of Topmast, and those that installed packages bring.

    Raises FormatError for a package whose policy cannot be loaded.
    """
    # Only here: a service that resizes nothing starts without the simulator's policies.
    from simulator.policies.registry import policies

    return {name: policy.elastic for name, policy in policies().items() if policy.elastic is not None}


def elastic_policy(
    name: str, source: str = "scheduler.yaml", resize_pause_s: float | None = None
) -> ElasticPolicy | None:
    """What resizes the attempts of a service, at that price of a resize; None for `none`.

    Raises FormatError for a policy that there is not, for one that resizes nothing, and for a price where there is none.
    """
    policy = _named(name, source)
    if resize_pause_s is None:
        return policy
    if not isinstance(policy, LyraElastic):
        described = (
            f"elastic: {name} does not go by what a resize costs; leave resize_pause_s out, or use elastic: lyra"
        )
        raise FormatError(source, [FieldProblem("resize_pause_s", described)])
    return replace(policy, resize_pause_s=resize_pause_s)


def _named(name: str, source: str) -> ElasticPolicy | None:
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
