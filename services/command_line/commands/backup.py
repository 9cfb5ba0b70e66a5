"""topmast db backup and topmast db restore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.commands.clean import size
from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.options import DatabaseOption, HomeOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.reached_database import reached_database

if TYPE_CHECKING:
    from services.database.backup import Backup

NewFileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Where to: a file that is not there yet.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="What 'topmast db backup' wrote.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Also where the database is not empty: what is in it goes for good.")
]


@reported(needs=Extra.SERVER)
def backup(
    file: NewFileArgument, database_url: DatabaseOption = None, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """Write everything that is in the database to one file, as it is at this moment. The service may run meanwhile.

    Checkpoints, logs and packages are no part of it: they are in TOPMAST_HOME or in their stores.
    """
    from services.database.backup import back_up

    with reached_database(database_url, home) as url:
        made = back_up(url, file)
    _show(made, "backed up to", as_json=as_json)


@reported(needs=Extra.SERVER)
def restore(
    file: FileArgument,
    replace: ReplaceOption = False,
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an empty database what it was when the backup was made, as a whole or not at all. The service must be down.

    What ran then and does not run any more begins again from its last checkpoint. What was submitted since is not known.
    """
    from services.database.backup import restore as bring_back
    from services.database.migrations_runner import newest

    with reached_database(database_url, home, may_begin=True) as url:
        restored = bring_back(url, file, replace=replace)
        needed = newest()
    _show(restored, "restored from", as_json=as_json)
    if restored.revision != needed:
        note(
            f"this program needs revision {needed}: 'topmast up' brings the tables there, and so does 'topmast db upgrade'"
        )


def _show(what: Backup, done: str, *, as_json: bool) -> None:
    if as_json:
        show_json({"file": str(what.file), "size_bytes": what.size_bytes, "revision": what.revision})
    else:
        show_line(f"{done} {what.file}: {size(what.size_bytes)}, tables of revision {what.revision}")
