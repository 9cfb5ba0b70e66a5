"""How far a large fleet has been sent: a bar on a terminal, nothing elsewhere; on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topmast import FleetUploadProgress


@contextmanager
def upload_display() -> Iterator[Callable[[FleetUploadProgress], None] | None]:
    """What to tell how far it is; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        DownloadColumn(binary_units=True),
        TimeElapsedColumn(),
        console=Console(stderr=True, highlight=False),
        transient=True,
    )
    task = bar.add_task("sending the fleet", visible=False)

    def told(progress: FleetUploadProgress) -> None:
        sent_all = progress.sent_bytes == progress.size_bytes
        bar.update(
            task,
            description="applying the fleet" if sent_all else "sending the fleet",
            completed=progress.sent_bytes,
            total=progress.size_bytes,
            visible=True,
            refresh=True,
        )

    with bar:
        yield told
