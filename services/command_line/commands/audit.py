"""topmast audit: what was done, and refused, of what only some may do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from services.command_line.connection import connect
from services.command_line.durations import duration_option
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, show, show_json
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import AuditRecord

SinceOption = Annotated[str, typer.Option("--since", metavar="DURATION", help="Of the last 30m, 12h, 7d, ...")]
ActorOption = Annotated[str, typer.Option("--actor", help="Of callers of this name.")]
ActionOption = Annotated[str, typer.Option("--action", help="Of this kind: Drain, ApplyTenants, CreateToken, ...")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="At most so many, the newest.")]

_LONGEST_SHOWN = 60


def audit(
    since: SinceOption = "",
    actor: ActorOption = "",
    action: ActionOption = "",
    limit: LimitOption = 100,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what was administered: who did what to what, when, how it was before, and what was refused."""
    ago_s = duration_option(since, "--since")
    since_s = 0.0 if ago_s is None else datetime.now(UTC).timestamp() - ago_s
    with connect(address) as client:
        records = list(client.access.audit(since_s=since_s, actor=actor, action=action, limit=limit))
    if as_json:
        for record in records:
            show_json(record)
        return
    head = ("at", "who", "role", "action", "to", "outcome", "asked for")
    show(TextTable("Audit", head, [_row(record) for record in records]))


def _row(record: AuditRecord) -> tuple[str, ...]:
    return (
        moment(record.at_s),
        record.actor,
        record.actor_role,
        record.action,
        _short(", ".join(record.subjects)),
        record.outcome if not record.reason else f"{record.outcome}: {_short(record.reason)}",
        _short(_in_words(record.after)),
    )


def _in_words(document: Mapping[str, Any] | None) -> str:
    return "" if not document else json.dumps(document, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
