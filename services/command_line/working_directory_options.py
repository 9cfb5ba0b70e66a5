"""Which folder tasks start with: where the command was typed, unless something else was said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

WorkdirOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--workdir",
        metavar="DIR",
        help="Tasks start with what is in this folder, without what .gitignore and .topmastignore name; without it,"
        " with what is in the one in which this was typed.",
        show_default=False,
    ),
]
NoWorkdirOption: TypeAlias = Annotated[bool, typer.Option("--no-workdir", help="Tasks start in an empty folder.")]

HERE = Path()


def said_workdir(workdir: Path | None, *, no_workdir: bool) -> Path | None:
    """The folder that was named; refuses one that is not there, and one beside --no-workdir."""
    if workdir is None:
        return None
    if no_workdir:
        raise typer.BadParameter("give --workdir or --no-workdir, not both")
    if not workdir.is_dir():
        raise typer.BadParameter(f"there is no folder {workdir}", param_hint="--workdir")
    return workdir
