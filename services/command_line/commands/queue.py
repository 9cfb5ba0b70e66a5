"""topmast queue: which workloads wait, in which order."""

from __future__ import annotations

from typing import Annotated

import typer

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, TenantFilter
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import moment
from services.command_line.workload_view import diagnosis_words

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many of the first.")]


def queue(
    tenant: TenantFilter = "", limit: LimitOption = 50, address: AddressOption = None, as_json: JsonOption = False
) -> None:
    """Show the head of the queue, best first, and why each waits."""
    with connect(address) as client:
        queue = client.queue(limit=limit, tenant=tenant)
    if as_json:
        show_json(queue)
        return
    rows = [
        (
            str(entry.position.rank or ""),
            entry.workload,
            entry.name,
            entry.tenant,
            entry.state.value,
            str(entry.position.priority),
            str(entry.position.level),
            f"{entry.position.credit:.3f}",
            "within" if entry.position.within_quota else "over",
            str(entry.gpus),
            moment(entry.submitted_s),
            diagnosis_words(entry.position.diagnosis),
            entry.position.reason,
        )
        for entry in queue.entries
    ]
    head = ("rank", "workload", "name", "tenant", "state", "priority", "level", "credit", "quota", "gpus", "submitted")
    show(TextTable("Queue", (*head, "diagnosis", "reason"), rows, right=frozenset({0, 5, 6, 7, 9})))
    note(f"{len(rows)} of {queue.queued} queued, as of scan pass {queue.scan_pass} at {moment(queue.scan_pass_s)}")
