"""topmast db: the tables of the database."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.commands.backup import backup, restore
from services.command_line.commands.prune import prune
from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.options import DatabaseOption, HomeOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.reached_database import reached_database

app = typer.Typer(name="db", help="The tables of the database.", no_args_is_help=True)
app.command("prune")(prune)
app.command("backup")(backup)
app.command("restore")(restore)

RevisionOption = Annotated[str, typer.Option("--revision", help="Up to which.")]
RevisionArgument = Annotated[str, typer.Argument(metavar="REVISION", help="Down to which; base: nothing is left.")]


@app.command("upgrade")
@reported(needs=Extra.SERVER)
def upgrade(database_url: DatabaseOption = None, home: HomeOption = None, revision: RevisionOption = "head") -> None:
    """Bring the tables to the version of this program. Does nothing when they are."""
    from services.database.migrations_runner import current
    from services.database.migrations_runner import upgrade as bring_up

    with reached_database(database_url, home, may_begin=True) as url:
        before = current(url)
        bring_up(url, revision)
        after = current(url)
    show_line(f"the database is at revision {after}" + ("" if before == after else f" (before: {before or 'empty'})"))


@app.command("downgrade")
@reported(needs=Extra.SERVER)
def downgrade(revision: RevisionArgument, database_url: DatabaseOption = None, home: HomeOption = None) -> None:
    """Take the tables back to an older version, with whatever only newer ones can hold."""
    from services.database.migrations_runner import current
    from services.database.migrations_runner import downgrade as take_back

    with reached_database(database_url, home) as url:
        take_back(url, revision)
        after = current(url)
    show_line(f"the database is at revision {after}" if after else "the database is empty")


@app.command("current")
@reported(needs=Extra.SERVER)
def current(database_url: DatabaseOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Show the version of the tables, and the one that this program needs."""
    from services.database.migrations_runner import current as current_revision
    from services.database.migrations_runner import newest

    with reached_database(database_url, home) as url:
        here = current_revision(url)
    if as_json:
        show_json({"current": here, "newest": newest()})
    else:
        show_line(f"the database is at revision {here or 'empty'}; this program needs {newest()}")
