"""topmast queue: which workloads wait, in which order, and for which of them machines are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, TenantFilter, WideOption
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.waiting_view import waiting_words
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import Reservation

LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many of the first.")]


def queue(
    tenant: TenantFilter = "",
    limit: LimitOption = 50,
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the head of the queue, best first, and why each waits; and for which gangs machines are kept, wherever they are in it."""
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
            waiting_words(entry.position, entry.position.reason),
        )
        for entry in queue.entries
    ]
    head = ("rank", "workload", "name", "tenant", "state", "priority", "level", "credit", "quota", "gpus", "submitted")
    tables = [
        TextTable(
            "Queue",
            (*head, "reason"),
            rows,
            right=frozenset({0, 5, 6, 7, 9}),
            prose=frozenset({11}),
            least=(7, 6, 10, 4, 8, 9, 3, 5, 2),
        )
    ]
    if queue.reservations:
        tables.append(_reservations(queue.reservations))
    show(*tables, wide=wide)
    note(f"{len(rows)} of {queue.queued} queued, as of scan pass {queue.scan_pass} at {moment(queue.scan_pass_s)}")


def _reservations(kept: Sequence[Reservation]) -> TextTable:
    rows = [
        (
            one.workload,
            one.name,
            one.tenant,
            str(one.priority),
            str(one.gpus),
            one.region,
            " ".join(one.clusters),
            str(len(one.machines)),
            moment(one.made_s),
            moment(one.expected_start_s),
        )
        for one in kept
    ]
    head = ("workload", "name", "tenant", "priority", "gpus", "region", "clusters", "machines", "kept since")
    return TextTable(
        "Machines kept for gangs",
        (*head, "expected start"),
        rows,
        right=frozenset({3, 4, 7}),
        least=(8, 3, 7, 6, 2, 4, 1),
    )
