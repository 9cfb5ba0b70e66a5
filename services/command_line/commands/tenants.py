"""topmast tenants: what tenants may use, use, borrow and wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import duration, number

if TYPE_CHECKING:
    from topmast import TenantUse

TenantArgument = Annotated[str, typer.Argument(metavar="TENANT", help="Only this one.", show_default=False)]

_PAGE = 1_000


def tenants(tenant: TenantArgument = "", address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show of each tenant its quotas, what it uses of them, borrows beyond them and waits for, and its credit."""
    found: list[TenantUse] = []
    window_s = 0.0
    page_token = ""
    with connect(address) as client:
        while True:
            page = client.tenants_page(page_size=_PAGE, page_token=page_token, tenant=tenant)
            window_s, page_token = page.window_s, page.next_page_token
            if as_json:
                for one in page.tenants:
                    show_json(one)
            found += page.tenants
            if not page_token:
                break
    if as_json:
        return
    if not found:
        note("there are no tenants: topmast apply -f tenants.yaml")
        return
    show(_tenants(found), TextTable("Quotas", _QUOTA_HEAD, [*_quotas(found)], right=frozenset(range(3, 7))))
    note(f"averages are over the last {duration(window_s)}; to the credit of a workload its waiting time is added")


def _tenants(found: list[TenantUse]) -> TextTable:
    head = ("tenant", "priority", "gpus", "average", "running", "queued", "over quota", "weight", "credit")
    rows = [
        (
            one.tenant,
            str(one.priority),
            str(one.gpus_in_use),
            number(one.average_gpus),
            str(one.live_attempts),
            str(one.queued),
            str(one.queued_over_quota),
            number(one.fair_share_weight),
            number(one.credit),
        )
        for one in found
    ]
    return TextTable("Tenants", head, rows, right=frozenset(range(1, 9)))


_QUOTA_HEAD = ("tenant", "priority", "of", "quota", "used", "borrowed", "queued")


def _quotas(found: list[TenantUse]) -> Iterator[tuple[str, ...]]:
    for one in found:
        for quota in one.quotas:
            amounts = (quota.used, quota.borrowed, quota.queued)
            if quota.quota is None and not any(amounts):
                continue  # CPUs that nothing limits and nobody asks for.
            limit = "unlimited" if quota.quota is None else number(quota.quota)
            yield (one.tenant, str(quota.priority), quota.resource, limit, *(number(amount) for amount in amounts))
