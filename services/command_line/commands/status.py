"""topmast status: processes, tiers, regions and workloads in one look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption, WideOption
from services.command_line.output import TextTable, as_mapping, note, show, show_json
from services.command_line.service_here import service_of_this_machine
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import Status


def status(wide: WideOption = False, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show how Topmast is: its processes on this machine, its tiers, its regions, how many workloads are in which state.

    What is down is told, with since when, also when the service does not answer.
    """
    here = service_of_this_machine(address)
    if here is not None and not as_json:
        show(*here.tables, wide=wide)
    try:
        with connect(address) as client:
            present = client.status()
    finally:
        # Also, and above all, where nothing answers.
        for sentence in () if here is None else here.remarks:
            note(sentence)
    if as_json:
        show_json({**as_mapping(present), "processes": [] if here is None else here.processes})
    else:
        show(*_tables(present), wide=wide)


def _tables(present: Status) -> tuple[TextTable, ...]:
    return (
        TextTable(
            "",
            ("version", "clock", "scan pass"),
            [(present.version, moment(present.now_s), str(present.scan_pass))],
        ),
        *_health(present),
        TextTable(
            "Tiers",
            ("tier", "name", "state", "address", "process"),
            _tier_rows(present),
            right=frozenset({4}),
        ),
        TextTable(
            "Regions",
            (
                "region",
                "clusters",
                "machines up",
                "on loan",
                "machines",
                "gpus in use",
                "gpus",
                "running",
                "violations",
            ),
            [
                (
                    region.region,
                    str(region.clusters),
                    str(region.machines_up),
                    str(region.machines_on_loan),
                    str(region.machines),
                    str(region.gpus_in_use),
                    str(region.gpus),
                    str(region.live_attempts),
                    str(region.invariant_violations),
                )
                for region in present.regions
            ],
            right=frozenset(range(1, 9)),
        ),
        TextTable(
            "Workloads",
            ("state", "workloads"),
            [(state, str(count)) for state, count in present.workloads.items()],
            right=frozenset({1}),
        ),
    )


def _tier_rows(present: Status) -> list[tuple[str, ...]]:
    """Each server, and under it who stands by for it."""
    rows: list[tuple[str, ...]] = []
    for tier in present.tiers:
        process = str(tier.process_id) if tier.process_id else ""
        rows.append((tier.tier, tier.name, "alive" if tier.alive else "dead", tier.address, process))
        rows.extend(
            (standby.tier, standby.name, "stands by", standby.address, str(standby.process_id))
            for standby in present.standbys
            if (standby.tier, standby.name) == (tier.tier, tier.name)
        )
    return rows


def _health(present: Status) -> tuple[TextTable, ...]:
    """What is not as it should be, if anything is."""
    if not present.health:
        return ()
    rows = [(detail.kind, moment(detail.since_s), detail.sentence) for detail in present.health]
    return (TextTable("Not as it should be", ("kind", "since", "what"), rows),)
