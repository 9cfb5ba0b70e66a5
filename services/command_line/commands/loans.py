"""topmast loans: the machines that inference clusters lend to training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from services.command_line.connection import connect
from services.command_line.failures import not_there
from services.command_line.options import AddressOption, JsonOption, WideOption
from services.command_line.output import TextTable, note, show, show_json
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import ClusterLoans

ClusterFilter = Annotated[str, typer.Option("--cluster", help="Only this cluster.")]


def loans(
    cluster: ClusterFilter = "",
    wide: WideOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what inference clusters lend to training: machines on loan and on the way back, what inference needs and will need."""
    with connect(address) as client:
        found = client.loans(cluster=cluster)
        if cluster and not found:
            not_there(cluster, [one.cluster for one in client.loans()], "inference cluster")
    if as_json:
        for one in found:
            show_json(one)
    elif not found:
        note("no cluster of the fleet serves inference")
    else:
        show(*_tables(found), wide=wide)
        for one in found:
            if one.problem:
                note(f"{one.cluster} lends no more: {one.problem}")


def _tables(found: tuple[ClusterLoans, ...]) -> list[TextTable]:
    tables = [
        TextTable(
            "Loans",
            (
                "cluster",
                "region",
                "machines",
                "on loan",
                "returning",
                "wanted",
                "needed",
                "forecast",
                "shortfall",
                "answered",
            ),
            [
                (
                    one.cluster,
                    one.region,
                    str(one.machines),
                    str(one.on_loan),
                    str(len(one.returning)),
                    str(one.wanted_on_loan),
                    "" if one.answered_s is None else str(one.needed_machines),
                    "" if one.answered_s is None else f"{one.forecast:.1%}",
                    str(one.shortfall),
                    "" if one.answered_s is None else moment(one.answered_s),
                )
                for one in found
            ],
            right=frozenset(range(2, 9)),
            least=(9, 1, 7, 2),
        )
    ]
    returning = [
        (
            back.machine,
            one.cluster,
            "" if back.asked_back_s is None else moment(back.asked_back_s),
            "" if back.deadline_s is None else moment(back.deadline_s),
        )
        for one in found
        for back in one.returning
    ]
    if returning:
        tables.append(TextTable("Returning", ("machine", "cluster", "asked back", "deadline"), returning))
    return tables
