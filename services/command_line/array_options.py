"""The option by which one submission becomes an array of workloads."""

from __future__ import annotations

from typing import Annotated

import typer

from domain.workload_array import BadArray, parse_array
from services.command_line.empty_option import refuse_empty

ArrayOption = Annotated[
    str,
    typer.Option(
        "--array",
        metavar="INDICES[%N]",
        help="Once for each index: 0-9999, 0-15:4, 1,3,7; with %50, at most 50 in the queue or running at once. "
        "Tasks have their index in TOPMAST_ARRAY_INDEX.",
        show_default=False,
        callback=refuse_empty,
    ),
]


def array_option(written: str) -> str:
    """The same; raises BadParameter, which names the option."""
    if written:
        try:
            parse_array(written)
        except BadArray as bad:
            raise typer.BadParameter(str(bad), param_hint="--array") from bad
    return written
