"""topmast policies: what can be simulated."""

from __future__ import annotations

from services.command_line.options import JsonOption
from services.command_line.output import Table, show, show_json


def list_policies(as_json: JsonOption = False) -> None:
    """List the policies that can be simulated and compared, each with its source."""
    from simulator.policies.registry import policies

    known = policies()
    if as_json:
        show_json(
            [{"policy": name, "summary": policy.summary, "scans": policy.scans} for name, policy in known.items()]
        )
        return
    show(Table("", ("policy", "what it does"), [(name, policy.summary) for name, policy in known.items()]))
