"""topmast mechanisms: what clusters can name as their placement mechanism."""

from __future__ import annotations

from services.command_line.options import JsonOption
from services.command_line.output import TextTable, show, show_json


def list_mechanisms(as_json: JsonOption = False) -> None:
    """List the placement mechanisms that a cluster of fleet.yaml can have, those of installed packages too."""
    from cluster_manager.mechanisms import BUILT_IN, mechanism_entries

    entries = mechanism_entries()
    if as_json:
        show_json(
            [{"mechanism": entry.name, "summary": entry.summary, "built_in": entry in BUILT_IN} for entry in entries]
        )
        return
    rows = [(entry.name, "Topmast" if entry in BUILT_IN else "a package", entry.summary) for entry in entries]
    show(TextTable("", ("mechanism", "from", "what it does"), rows))
