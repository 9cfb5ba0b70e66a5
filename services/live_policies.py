"""By which settings a service follows a policy beyond the order of the queue: for `topmast policies`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

from regional_scheduler.reclaiming import RECLAIMING
from services.queue_rules import why_not_live
from services.tuning_choice import LIVE_TUNINGS

if TYPE_CHECKING:
    from simulator.policies.policy import Policy


def switched_on_by(policy: Policy) -> Mapping[str, str]:
    """Settings and their values: of scheduler.yaml, and of an inference cluster in fleet.yaml for what goes back to it.

    Empty: the policy is an order alone, or a service cannot follow it (`why_not_followed`).
    """
    settings: dict[str, str] = {}
    if why_not_followed(policy) is not None:
        return settings
    if policy.elastic is not None:
        settings["elastic"] = policy.name
    if policy.name in LIVE_TUNINGS:
        settings["tuning"] = policy.name
    if policy.uses_loans and policy.reclaiming != _plain(policy).reclaiming:
        settings["inference.reclaiming"] = policy.reclaiming.name
    return settings


def why_not_followed(policy: Policy) -> str | None:
    """Why no settings make a service follow this policy; None: it can, perhaps on estimates."""
    why = why_not_live(policy)
    if why is None:
        return None
    if policy.name in LIVE_TUNINGS:
        return None
    plain = _plain(policy)
    if policy.tuning is None and policy.reclaiming in (plain.reclaiming, *RECLAIMING.values()):
        return why_not_live(plain)
    return why


def _plain(policy: Policy) -> Policy:
    """The policy without what a service has settings of its own for."""
    without = type(policy)("", "", policy.ordering)
    return dataclasses.replace(policy, elastic=None, tuning=None, reclaiming=without.reclaiming)
