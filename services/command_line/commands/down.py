"""topmast down: the end of a service on this machine."""

from __future__ import annotations

from services.command_line.options import HomeOption, JsonOption
from services.command_line.output import show_json, show_line


def down(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Stop the Topmast of this machine in order. What was stored stays; what ran is resumed from its checkpoints."""
    from services.runtime.home import default_home
    from services.runtime.local import down as bring_down

    folder = (home or default_home()).expanduser().resolve()
    was_running = bring_down(folder)
    if as_json:
        show_json({"was_running": was_running})
    else:
        show_line("Topmast is down" if was_running else f"no Topmast was up from {folder}")
