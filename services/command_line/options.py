"""Options that several commands have, so that they look alike everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from services.command_line.completion import complete_workload
from services.command_line.files import STANDARD_INPUT, replayable


def _or_of_topmast(context: typer.Context, said: str | None) -> str | None:
    """What was said for the command, else what was said for `topmast` before it."""
    if said == "":
        raise typer.BadParameter("is empty, as from a variable that is not set; say HOST:PORT, or leave it out")
    return context.find_root().params.get("address") if said is None else said


def existing(file: Path) -> Path:
    """The file, a pipe or what else can be read, or standard input; refuses what is not there, and folders."""
    if file != STANDARD_INPUT and not file.exists():
        raise typer.BadParameter(f"there is no file {file}")
    if file.is_dir():
        raise typer.BadParameter(f"{file} is a folder; name a file")
    return file


def in_a_folder(file: Path | None) -> Path | None:
    """The file that is to be written at the end of something long; refuses one whose folder is not there."""
    if file is not None and not file.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {file.parent}")
    return file


def _all_existing(files: list[Path]) -> list[Path]:
    return [existing(file) for file in files]


def _label_conditions(said: list[str] | None) -> list[str] | None:
    """What was said, if each of it is a condition on a label."""
    from topmast.label_conditions import label_condition

    for text in said or ():
        try:
            label_condition(text)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error
    return said


AddressOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        callback=_or_of_topmast,
        help="Where Topmast is; several addresses with commas between. Otherwise TOPMAST_ADDRESS, the file 'address' in TOPMAST_HOME or ~/.topmast, 127.0.0.1:7460.",
        show_default=False,
    ),
]

FilesOption: TypeAlias = Annotated[
    list[Path],
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        callback=_all_existing,
        help="What to read; - is standard input. May be repeated.",
        show_default=False,
    ),
]

WideOption: TypeAlias = Annotated[
    bool, typer.Option("--wide", help="All columns in full, however narrow the terminal is.")
]

JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

WorkloadArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="WORKLOAD", autocompletion=complete_workload, show_default=False)
]

JobOfTaskOption: TypeAlias = Annotated[
    str, typer.Option("--job", help="Of this job; otherwise of the first.", show_default=False)
]

TaskNumberOption: TypeAlias = Annotated[int, typer.Option("--task", min=0, help="Which task of the job.")]

TenantFilter: TypeAlias = Annotated[str, typer.Option("--tenant", help="Only of this tenant.", show_default=False)]

LabelFilter: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        "-l",
        metavar="CONDITION",
        help="Only with this label: key=value, key!=value, key, !key; may be repeated, all have to be met.",
        callback=_label_conditions,
        show_default=False,
    ),
]

IdempotencyKeyOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--idempotency-key",
        help="Makes repeating the command safe: the same key and content always mean the same workload.",
        show_default=False,
    ),
]

DryRunOption: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would happen: everything is checked, nothing is stored.")
]

HomeOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--home",
        file_okay=False,
        help="The folder of a local Topmast. Otherwise TOPMAST_HOME, or ~/.topmast.",
        show_default=False,
    ),
]

DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        metavar="URL",
        help="PostgreSQL, as postgresql://user@host/name. Otherwise TOPMAST_DATABASE_URL, or the embedded server.",
        show_default=False,
    ),
]

ConfigurationOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        exists=True,
        dir_okay=False,
        callback=replayable,
        help="How the service decides, and its tiers keep time (scheduler.yaml).",
        show_default=False,
    ),
]
