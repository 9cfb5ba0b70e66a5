"""What the shell may complete besides commands and options: the names of workloads."""

from __future__ import annotations

import typer

_PATIENCE_S = 1.0
_OFFERED = 100


def complete_workload(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Workloads that begin so, newest first, each with its name and state; none when Topmast does not answer."""
    from topmast import Client, TopmastError

    said = context.params.get("address") or context.find_root().params.get("address")
    try:
        with Client(said, attempts=1, timeout_s=_PATIENCE_S) as client:
            return [
                (workload.workload, f"{workload.name} {workload.state}")
                for workload in client.list(limit=_OFFERED)
                if workload.workload.startswith(incomplete)
            ]
    except TopmastError:
        # A tabulator key was pressed: that is no place for an error.
        return []
