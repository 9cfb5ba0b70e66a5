"""topmast list: workloads, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from domain.life_cycle import State
from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, LabelFilter, TenantFilter, WideOption
from services.command_line.output import note, show, show_json
from services.command_line.wording import parse_moment
from services.command_line.workload_view import list_table

StateOption = Annotated[
    list[State] | None,
    typer.Option("--state", case_sensitive=False, help="Only in this state; may be repeated.", show_default=False),
]
RegionFilter = Annotated[str, typer.Option("--region", help="Only with its last attempt there.", show_default=False)]
NameFilter = Annotated[str, typer.Option("--name", help="Only with this in the name.", show_default=False)]
AfterOption = Annotated[
    str, typer.Option("--submitted-after", metavar="TIME", help="Only those submitted later.", show_default=False)
]
BeforeOption = Annotated[
    str, typer.Option("--submitted-before", metavar="TIME", help="Only those submitted earlier.", show_default=False)
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="Of one page.")]
PageTokenOption = Annotated[
    str, typer.Option("--page-token", help="Goes on where the last page ended.", show_default=False)
]
ExpandOption = Annotated[
    bool, typer.Option("--expand", help="Elements of arrays one by one; with --state or --region they always are.")
]
ArrayFilter = Annotated[
    str, typer.Option("--array", metavar="ARRAY", help="Only the elements of this array.", show_default=False)
]
AllOption = Annotated[bool, typer.Option("--all", help="All pages.")]


def list_workloads(
    tenant: TenantFilter = "",
    state: StateOption = None,
    region: RegionFilter = "",
    name: NameFilter = "",
    label: LabelFilter = None,
    array: ArrayFilter = "",
    expand: ExpandOption = False,
    submitted_after: AfterOption = "",
    submitted_before: BeforeOption = "",
    limit: LimitOption = 50,
    page_token: PageTokenOption = "",
    every_page: AllOption = False,
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """List workloads, newest first. A TIME is seconds since the epoch, or a date with or without time, of here unless it names a zone."""
    from topmast import WorkloadState
    from topmast.requests import WorkloadFilter

    wanted = WorkloadFilter(
        tenant=tenant,
        states=[WorkloadState(one.value) for one in state or ()],
        region=region,
        name_contains=name,
        labels=label or (),
        array=array,
        expand_arrays=expand,
        submitted_after_s=_moment(submitted_after, "--submitted-after"),
        submitted_before_s=_moment(submitted_before, "--submitted-before"),
    )
    next_token = ""
    with connect(address) as client:
        if every_page:
            workloads = client.list(**wanted)
        else:
            page = client.list_page(page_size=limit, page_token=page_token, **wanted)
            workloads, next_token = iter(page.workloads), page.next_page_token
        if as_json:
            shown = False
            for workload in workloads:
                shown = True
                show_json(workload)
            if not shown:
                note("workloads: none")
        else:
            show(list_table(workloads), wide=wide)
    if next_token:
        note(f"there are more: --page-token {next_token}, or --all")


def _moment(said: str, option: str) -> float:
    if not said:
        return 0.0
    try:
        return parse_moment(said)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
