"""topmast clean: what former runs of this home's service have left on the disk."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from services.command_line.options import HomeOption, JsonOption
from services.command_line.output import note, show_json, show_line

YesOption = Annotated[bool, typer.Option("--yes", help="Remove it without asking.")]

_KIB = 1024.0


def clean(home: HomeOption = None, yes: YesOption = False, as_json: JsonOption = False) -> None:
    """List what former runs have left in TOPMAST_HOME, with sizes, and remove it when that is agreed to.

    Logs and folders of Ray of services that are down, and kept simulations. The service may be up: what it uses stays. Checkpoints,
    logs of workloads and the database are never touched.
    """
    from services.runtime.cleaning import clean as take_away
    from services.runtime.home import default_home

    folder = (home or default_home()).expanduser().resolve()
    found = take_away(folder, remove=yes)
    removed = yes
    if not as_json:
        for leftover in found.leftovers:
            show_line(f"{size(leftover.size_bytes):>10}  {leftover.path}  ({leftover.what})")
        if not found.leftovers:
            show_line(f"there is nothing to remove in {folder}")
            return
        if not yes and sys.stdin.isatty():
            typer.confirm(f"Remove {size(found.size_bytes)}?", abort=True)
            found = take_away(folder, remove=True)
            removed = True
    if as_json:
        leftovers = [
            {"path": str(leftover.path), "what": leftover.what, "size_bytes": leftover.size_bytes}
            for leftover in found.leftovers
        ]
        show_json({"removed": removed, "size_bytes": found.size_bytes, "leftovers": leftovers})
    elif removed:
        show_line(f"removed {size(found.size_bytes)}")
    else:
        note(f"nothing was removed; --yes removes {size(found.size_bytes)}")


def size(size_bytes: int) -> str:
    """A number of bytes for people: 12 KiB, 3.4 MiB."""
    value, unit = size_bytes / _KIB, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        if value < _KIB:
            break
        value, unit = value / _KIB, larger
    return f"{value:.1f} {unit}"
