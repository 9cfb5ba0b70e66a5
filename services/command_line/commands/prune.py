"""topmast db prune: what is over and old leaves the database."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.files import replayable
from services.command_line.log_aside import log_aside
from services.command_line.options import DatabaseOption, HomeOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from services.retention.archive import Archive
    from services.retention.pruning import Pruned

OlderThanOption = Annotated[
    str, typer.Option("--older-than", metavar="AGE", help="What was over for so long: 30d, 12h, 2w.")
]
WorkloadsOlderThanOption = Annotated[
    str | None,
    typer.Option(
        "--workloads-older-than",
        metavar="AGE",
        help="Take out workloads themselves that ended so long ago, with their outcome. Without: they stay.",
        show_default=False,
    ),
]
ArchiveOption = Annotated[
    Path | None,
    typer.Option(
        "--archive",
        metavar="DIR",
        file_okay=False,
        help="Write it to this folder as Parquet before. Without: it is deleted for good.",
        show_default=False,
    ),
]
ConfigurationOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="The service's scheduler.yaml: what its scan passes look back at is kept.",
        show_default=False,
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count what would go.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@reported(needs=Extra.SERVER)
def prune(
    older_than: OlderThanOption = "30d",
    workloads_older_than: WorkloadsOlderThanOption = None,
    archive: ArchiveOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    config: ConfigurationOption = None,
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take out events, attempts, placements, checkpoints and auction rounds of what ended long ago.

    Workloads stay, with their outcome, unless --workloads-older-than takes them out, and everything of those that have not ended. The
    service may run meanwhile.
    """
    from services.command_line.reached_database import reached_database
    from services.configuration import load_configuration
    from services.database.migrations_runner import require_tables
    from services.retention.age import BadAge, check_age, check_workloads_age, least_age_s, parse_age
    from services.retention.archive import Archive, ArchiveUnusable

    try:
        age_s = check_age(parse_age(older_than), least_age_s(load_configuration(config).scan.usage_window_s))
    except BadAge as bad:
        raise typer.BadParameter(f"{bad}.", param_hint="--older-than") from bad
    try:
        workloads_age_s = (
            None if workloads_older_than is None else check_workloads_age(parse_age(workloads_older_than), age_s)
        )
    except BadAge as bad:
        raise typer.BadParameter(f"{bad}.", param_hint="--workloads-older-than") from bad
    kept = None if archive is None else Archive(archive)
    if kept is not None and not dry_run:
        try:
            kept.require_writable()
        except ArchiveUnusable as unusable:
            raise typer.BadParameter(f"{unusable}.", param_hint="--archive") from unusable
    if not (dry_run or yes):
        _ask(older_than, workloads_older_than, archive)
    with reached_database(database_url, home) as url, log_aside():
        require_tables(url)
        pruned = asyncio.run(_prune(url, age_s, workloads_age_s, kept, dry_run))
    if as_json:
        show_json({"dry_run": dry_run, "rows": pruned.rows})
        return
    verb = "would go" if dry_run else "archived and deleted" if kept is not None else "deleted"
    for name, count in pruned.rows.items():
        if count:
            show_line(f"{name}: {counted(count, 'row')} {verb}")
    if not pruned.total:
        show_line(f"nothing is older than {older_than}")


def _ask(older_than: str, workloads_older_than: str | None, archive: Path | None) -> None:
    if not sys.stdin.isatty():
        raise typer.BadParameter(
            "is needed where nobody can be asked; --dry-run shows what would go.", param_hint="--yes"
        )
    where = f"moved to {archive}" if archive is not None else "deleted for good (no --archive)"
    too = f", and workloads themselves that ended {workloads_older_than} ago," if workloads_older_than else ""
    typer.confirm(f"What was over {older_than} ago{too} is {where}. Go on?", abort=True)


async def _prune(
    url: str, age_s: float, workloads_age_s: float | None, archive: Archive | None, dry_run: bool
) -> Pruned:
    """Ages are those of the service's clock, which may be faster or slower than real time."""
    from services.database.engine import Database
    from services.retention.pruning import prune as take_out
    from services.runtime.clock_record import load_clock

    told_s = time.monotonic()

    def tell(pruned: Pruned) -> None:
        nonlocal told_s
        if time.monotonic() - told_s >= 1.0:
            told_s = time.monotonic()
            note(f"{pruned.total:,} rows so far")

    async with Database(url) as database:
        clock = await database.run(load_clock)
        now = clock.now()
        cutoff_s = None if workloads_age_s is None else now - workloads_age_s
        return await take_out(database, now - age_s, archive, workloads_cutoff_s=cutoff_s, dry_run=dry_run, told=tell)
