"""topmast policies: what can be simulated, and what a service can be configured to follow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.options import JsonOption
from services.command_line.output import TextTable, show, show_json

if TYPE_CHECKING:
    from simulator.policies.policy import Policy


def list_policies(as_json: JsonOption = False) -> None:
    """List the policies that can be simulated and compared, each with its source, and whether a service can follow it."""
    from services.live_policies import switched_on_by, why_not_followed
    from services.queue_rules import needs_estimates
    from simulator.policies.registry import policies

    known = policies()
    if as_json:
        show_json(
            [
                {
                    "policy": name,
                    "summary": policy.summary,
                    "scans": policy.scans,
                    "live": why_not_followed(policy) is None,
                    "ordering": policy.ordering.name,
                    "switched_on_by": dict(switched_on_by(policy)),
                    "needs_estimates": needs_estimates(policy),
                    "why_not_live": why_not_followed(policy),
                }
                for name, policy in known.items()
            ]
        )
        return
    rows = [(name, _live(policy), policy.summary) for name, policy in known.items()]
    show(TextTable("", ("policy", "live", "what it does"), rows))


def _live(policy: Policy) -> str:
    """The setting by which a service follows it; in plain words where that is the order of a priority."""
    from services.live_policies import switched_on_by, why_not_followed
    from services.queue_rules import needs_estimates

    if why_not_followed(policy) is not None:
        return "no"
    for setting, value in switched_on_by(policy).items():
        return f"{setting}: {value}"
    return "with estimates" if needs_estimates(policy) else "yes"
