"""topmast down: the end of a service on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.options import HomeOption, JsonOption
from services.command_line.output import StageDisplay, show_json, show_line

NowOption = Annotated[
    bool, typer.Option("--now", help="Running tasks get no time to save: they go on from their last checkpoint.")
]


def down(home: HomeOption = None, now: NowOption = False, as_json: JsonOption = False) -> None:
    """Stop the Topmast of this machine in order. What was stored stays; what ran is resumed from its checkpoints."""
    from services.runtime.home import default_home
    from services.runtime.local import down as bring_down

    folder = (home or default_home()).expanduser().resolve()
    with StageDisplay("stopping Topmast") as say:
        was_running = bring_down(folder, at_once=now, progress=say)
    if as_json:
        show_json({"was_running": was_running})
    else:
        show_line("Topmast is down" if was_running else f"no Topmast was up from {folder}")
