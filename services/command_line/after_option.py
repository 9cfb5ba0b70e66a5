"""--after: the workloads for which one waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="CONDITION:ID[,...]",
        help="Wait until these are so: ok:ID (has completed), failed:ID (has failed), any:ID (has ended).",
        show_default=False,
    ),
]


def said_after(after: Sequence[str] | None) -> tuple[str, ...]:
    """The dependencies that were said, each for itself."""
    return tuple(one.strip() for text in after or () for one in text.split(","))
