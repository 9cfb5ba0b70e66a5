"""topmast usage: the GPU-hours that were used."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.commands.fleet import ModelFilter
from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, TenantFilter
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import moment, parse_moment

if TYPE_CHECKING:
    from topmast import UsagePage, UsageRow


class Key(StrEnum):
    """What rows are told apart by."""

    PERIOD = "period"
    TENANT = "tenant"
    WORKLOAD = "workload"
    MODEL = "model"


class Period(StrEnum):
    """How long periods are."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


ByOption = Annotated[
    list[Key] | None,
    typer.Option("--by", help="What rows are told apart by; may be repeated.", show_default="tenant"),
]
PeriodOption = Annotated[Period, typer.Option("--period", help="Of --by period; they begin at midnight UTC.")]
FromOption = Annotated[str, typer.Option("--from", metavar="DAY", help="From this day on.", show_default=False)]
UntilOption = Annotated[
    str, typer.Option("--until", metavar="DAY", help="Until this day, without it.", show_default=False)
]
WorkloadFilter = Annotated[str, typer.Option("--workload", help="Only of this workload.", show_default=False)]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV.")]

_PAGE = 1_000
_DAY_S = 86_400.0


def usage(
    by: ByOption = None,
    period: PeriodOption = Period.DAY,
    from_day: FromOption = "",
    until_day: UntilOption = "",
    tenant: TenantFilter = "",
    workload: WorkloadFilter = "",
    gpu_model: ModelFilter = None,
    as_csv: CsvOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show GPU-hours: what attempts held from dispatch to end, those that run until now. Retention takes nothing away from them.

    A DAY is a date in UTC, as 2026-01-31.
    """
    from topmast.tenant_use import UsageFilter

    if as_csv and as_json:
        raise typer.BadParameter("and --json are both given; give one of them.", param_hint="--csv")
    keys = [key for key in Key if key in (by or [Key.TENANT])]
    wanted = UsageFilter(
        by=["gpu_model" if key is Key.MODEL else key.value for key in keys],
        period=period.value,
        from_s=_day(from_day, "--from"),
        until_s=_day(until_day, "--until"),
        tenant=tenant,
        workload=workload,
        gpu_model=gpu_model,
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    if as_csv:
        writer.writerow([*(key.value for key in keys), "gpu_hours"])
    rows: list[UsageRow] = []
    page_token = ""
    with connect(address) as client:
        while True:
            page = client.usage_page(page_size=_PAGE, page_token=page_token, **wanted)
            for row in page.rows:
                if as_json:
                    show_json(row)
                elif as_csv:
                    writer.writerow(_cells(row, keys, f"{row.gpu_hours:.6f}"))
                else:
                    rows.append(row)
            page_token = page.next_page_token
            if not page_token:
                break
    if rows:
        show(_table(rows, keys))
    note(_covers(page, bool(page.rows)))


def _day(said: str, option: str) -> float:
    if not said:
        return 0.0
    try:
        seconds = parse_moment(f"{said}T00:00:00+00:00" if re.fullmatch(r"\d{4}-\d\d-\d\d", said) else said)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
    if seconds % _DAY_S:
        raise typer.BadParameter(f"'{said}' is no whole day (UTC): use is counted by days.", param_hint=option)
    return seconds


def _table(rows: Sequence[UsageRow], keys: Sequence[Key]) -> TextTable:
    shown = [_cells(row, keys, f"{row.gpu_hours:,.2f}") for row in rows]
    if len(rows) > 1:
        total = f"{sum(row.gpu_hours for row in rows):,.2f}"
        shown.append(("total", *("" for _ in keys[1:]), total) if keys else (total,))
    return TextTable("GPU-hours", (*(key.value for key in keys), "gpu-hours"), shown, right=frozenset({len(keys)}))


def _cells(row: UsageRow, keys: Sequence[Key], hours: str) -> tuple[str, ...]:
    return (*_names(row, keys), hours)


def _names(row: UsageRow, keys: Sequence[Key]) -> Iterator[str]:
    for key in keys:
        match key:
            case Key.PERIOD:
                yield (
                    "" if row.period_start_s is None else f"{datetime.fromtimestamp(row.period_start_s, UTC):%Y-%m-%d}"
                )
            case Key.TENANT:
                yield row.tenant
            case Key.WORKLOAD:
                yield row.workload
            case Key.MODEL:
                yield row.gpu_model


def _covers(page: UsagePage, found: bool) -> str:
    if page.counted_since_s is None:
        return "nothing was used yet"
    nothing = "" if found else "nothing was used; "
    return f"{nothing}GPU-hours held from {moment(page.from_s)} until {moment(page.until_s)}, from dispatch to end of attempts"
