"""topmast clusters: which machines of a region belong to which cluster."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from data_placement.machine_assignment.time_limits import DEFAULT_TIME_LIMIT_S, GREATEST_TIME_LIMIT_S
from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.failures import reported
from services.command_line.files import read_input
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import TextTable, note, show, show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from domain.capacity_requests import ClusterRequests
    from domain.fleet import Fleet
    from topmast.machines import MachinePlan

app = typer.Typer(name="clusters", help="Which machines of a region belong to which cluster.", no_args_is_help=True)

RequestsArgument = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="requests.yaml, or - for standard input.", show_default="those applied"),
]
RequestsToApply = Annotated[Path, typer.Argument(metavar="FILE", help="requests.yaml, or - for standard input.")]
FleetOption = Annotated[
    Path | None,
    typer.Option(
        "--fleet", metavar="FLEET", help="Plan for this fleet file, with nothing running.", show_default="live"
    ),
]
RegionOption = Annotated[str, typer.Option("--region", help="Only this region.", show_default="all")]
TimeLimitOption = Annotated[
    float,
    typer.Option("--time-limit", min=0.0, max=GREATEST_TIME_LIMIT_S, help="Seconds for each region; 0: greedily."),
]
MovesOption = Annotated[int, typer.Option("--moves", min=0, help="Show so many moves.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Apply it; without it is only shown what would move.")]
NameArgument = Annotated[str, typer.Argument(metavar="MACHINE|CLUSTER", show_default=False)]

_MARGIN_S = 60.0


@app.command("plan")
@reported()
def plan(
    file: RequestsArgument = None,
    fleet: FleetOption = None,
    region: RegionOption = "",
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    moves: MovesOption = 20,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which machines would change their cluster to meet requests for capacity; changes nothing."""
    if fleet is not None:
        if file is None:
            raise typer.BadParameter("is missing: with --fleet give the requests to plan for", param_hint="FILE")
        plans = _plans_for_file(fleet, file, region, time_limit)
    else:
        text = "" if file is None else _checked(file)
        with connect(address, timeout_s=time_limit + _MARGIN_S) as client:
            plans = client.plan_machines(text, region=region, time_limit_s=time_limit)
    _show(plans, moves, as_json)


@app.command("apply")
@reported()
def apply(
    file: RequestsToApply,
    yes: YesOption = False,
    region: RegionOption = "",
    time_limit: TimeLimitOption = DEFAULT_TIME_LIMIT_S,
    moves: MovesOption = 20,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply requests for capacity: the schedulers of their regions move machines by them, now and whenever it is due."""
    text = _checked(file)
    with connect(address, attempts=CHANGING_ATTEMPTS, timeout_s=time_limit + _MARGIN_S) as client:
        if not yes:
            _show(client.plan_machines(text, region=region, time_limit_s=time_limit), moves, as_json)
            note("nothing is applied; repeat it with --yes")
            return
        regions = client.apply_machine_requests(text, region=region)
    if as_json:
        show_json({"regions": regions})
    else:
        show_line(f"requests applied for {', '.join(regions)}: watch machines move with topmast events --follow")


@app.command("explain")
@reported()
def explain(name: NameArgument, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Say why a machine is where it is, or what a cluster asks for and has."""
    with connect(address) as client:
        sentences = client.explain_machine(name)
    if as_json:
        show_json({"name": name, "sentences": sentences})
    else:
        for sentence in sentences:
            show_line(sentence)


def _checked(file: Path) -> str:
    """The text of the file, as far as it can be checked here."""
    from formats.capacity_requests_file import parse_requests

    text, source = read_input(file)
    parse_requests(text, source)
    return text


def _plans_for_file(fleet_file: Path, file: Path, region: str, time_limit_s: float) -> tuple[MachinePlan, ...]:
    from formats.capacity_requests_file import check_requests, parse_requests
    from formats.fleet_file import read_fleet
    from formats.problems import FormatError

    fleet = read_fleet(fleet_file)
    text, source = read_input(file)
    requests = parse_requests(text, source)
    problems = check_requests(requests, fleet)
    if problems:
        raise FormatError(source, problems)
    if region and all(one.region != region for one in fleet.regions):
        raise typer.BadParameter(f"the fleet has no region {region}", param_hint="--region")
    return tuple(_plan_of_fleet(fleet, requests, region, time_limit_s))


def _plan_of_fleet(
    fleet: Fleet, requests: tuple[ClusterRequests, ...], only: str, time_limit_s: float
) -> list[MachinePlan]:
    from data_placement.machine_assignment.region_machines import RegionMachines
    from services.machine_decision import Question, decided, decision_message
    from topmast.machines import machine_plans_from_proto
    from topmast.v1 import machine_assignment_pb2 as messages

    named = {one.cluster for one in requests}
    answer = messages.PlanMachinesResponse()
    for region in fleet.regions:
        if only not in ("", region.region) or not any(one.cluster in named for one in region.clusters):
            continue
        began_s = time.monotonic()
        decision = decided(Question(RegionMachines(region), 0), requests, time_limit_s)
        answer.regions.append(decision_message(decision, time.monotonic() - began_s))
    return list(machine_plans_from_proto(answer))


def _show(plans: tuple[MachinePlan, ...], most_moves: int, as_json: bool) -> None:
    if as_json:
        for one in plans:
            show_json(one)
        return
    for one in plans:
        show(*_tables(one, most_moves))
        if len(one.moves) > most_moves:
            note(f"{len(one.moves) - most_moves} more moves: --moves {len(one.moves)}")
        how = "nothing better is possible" if one.optimal else "whether there is better is not known"
        note(f"region {one.region}: {counted(len(one.moves), 'move')} ({one.solver}, {one.wall_s:.1f} s): {how}")
        for outcome in one.requests:
            if outcome.has_after < outcome.wanted or not outcome.holds_after:
                note(f"not met: {outcome.sentence}")


def _tables(plan: MachinePlan, most_moves: int) -> list[TextTable]:
    asked = TextTable(
        f"Requests of region {plan.region}",
        ("cluster", "gpu model", "in", "wanted", "has", "will have", "spares", "holds"),
        [
            (
                one.cluster,
                one.gpu_model,
                one.unit,
                str(one.wanted),
                str(one.has_before),
                str(one.has_after),
                str(one.spares_after),
                "yes" if one.holds_after else "no",
            )
            for one in plan.requests
        ],
        right=frozenset(range(3, 7)),
    )
    figures = TextTable(
        "Figures, the weightiest first",
        ("", "unmet", "unmet spares", "running", "moves", "spread"),
        [
            (name, *(str(figure) for figure in (cost.unmet, cost.unmet_spares, cost.running, cost.moves, cost.spread)))
            for name, cost in (("now", plan.present), ("then", plan.cost), ("bound", plan.bound))
        ],
        right=frozenset(range(1, 6)),
    )
    moving = TextTable(
        "Moves",
        ("machine", "from", "to", "gpus in use"),
        [(move.machine, move.from_cluster, move.to_cluster, str(move.running)) for move in plan.moves[:most_moves]],
        right=frozenset({3}),
    )
    return [asked, figures, moving] if moving.rows else [asked, figures]
