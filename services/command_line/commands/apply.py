"""topmast apply: fleets and tenants, from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.dry_run_view import print_changes
from services.command_line.exit_code import ExitCode
from services.command_line.extras import Extra, missing_module
from services.command_line.files import read_input
from services.command_line.options import AddressOption, DryRunOption, FilesOption, JsonOption
from services.command_line.output import note, show_json, show_line
from services.command_line.upload_progress import upload_display
from services.command_line.wording import counted

if TYPE_CHECKING:
    from domain.fleet import Fleet
    from domain.tenant import Tenant
    from formats.fleet_file import FleetFile
    from topmast import Client, DryRunChanges
    from topmast.v1 import fleet_pb2

_SHOWN_MISSING = 10


@dataclass(slots=True)
class _Read:
    """What the files describe, each with the file that does."""

    fleets: list[tuple[str, FleetFile]] = field(default_factory=list)
    tenants: list[tuple[str, tuple[Tenant, ...]]] = field(default_factory=list)


def apply(
    files: FilesOption,
    dry_run: DryRunOption = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Apply a fleet, or tenants, or both: what was there before is replaced.

    Files are recognised by what is in them. All files are read before anything is applied; a fleet and tenants are applied
    together or not at all.
    """
    from services.wire.fleets import fleet_to_proto, tenant_to_proto

    read = _read(files)
    done: dict[str, object] = {}
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        tenants = [tenant_to_proto(tenant) for tenant in read.tenants[0][1]] if read.tenants else None
        if dry_run:
            _show_changes(_check(client, read, tenants), as_json)
            return
        for _, described in read.fleets:
            with upload_display() as told:
                applied = client.apply_fleet(fleet_to_proto(described.fleet, described.tables), tenants, told=told)
            done["fleet"] = applied
            if not as_json:
                show_line(
                    f"fleet applied: {counted(applied.regions, 'region')}, {counted(applied.clusters, 'cluster')}, "
                    f"{counted(applied.machines, 'machine')}, {counted(applied.gpus, 'GPU')}"
                )
        if tenants is not None:
            done["tenants"] = len(tenants) if read.fleets else client.apply_tenants(tenants)
            if not as_json:
                show_line(f"tenants applied: {done['tenants']}")
        if read.fleets and not as_json:
            _say_who_is_missing(client)
    if as_json:
        show_json(done)


def _say_who_is_missing(client: Client) -> None:
    """Regions and clusters that nobody serves yet: a local service starts their tiers by itself, others have to be started."""
    from topmast import TopmastError

    try:
        there = {(tier.tier, tier.name) for tier in client.status().tiers if tier.alive}
        capacities = client.fleet()
    except TopmastError as error:
        note(f"whether all of it is served could not be seen: {error}")
        return
    missing = [
        f"topmast serve regional --region {region}"
        for region in dict.fromkeys(one.region for one in capacities)
        if ("regional", region) not in there
    ]
    missing += [
        f"topmast serve cluster --region {region} --cluster {cluster}"
        for region, cluster in dict.fromkeys((one.region, one.cluster) for one in capacities)
        if ("cluster", cluster) not in there
    ]
    if missing:
        shown = "\n".join(f"  {command}" for command in missing[:_SHOWN_MISSING])
        more = f"\n  and {len(missing) - _SHOWN_MISSING} more" if len(missing) > _SHOWN_MISSING else ""
        note(
            "nobody serves these yet; a local service (topmast up) starts them by itself within seconds, elsewhere they are"
            f" started by:\n{shown}{more}"
        )


def _check(client: Client, read: _Read, tenants: list[fleet_pb2.Tenant] | None) -> DryRunChanges:
    """What applying would do."""
    from services.wire.fleets import fleet_to_proto

    if not read.fleets:
        return client.check_tenants(tenants or ())
    described = read.fleets[0][1]
    with upload_display() as told:
        return client.check_fleet(fleet_to_proto(described.fleet, described.tables), tenants, told=told)


def _show_changes(changes: DryRunChanges, as_json: bool) -> None:
    """Prints them; ends as applying would end."""
    if as_json:
        show_json(changes)
    else:
        print_changes(changes)
    if changes.refused:
        note(f"topmast: it would be refused: {changes.refused}")
        raise typer.Exit(ExitCode.REFUSED)


def _read(files: list[Path]) -> _Read:
    """Everything, checked: each file by itself, and tenants against the fleet that comes with them."""
    from formats.fleet_file import fleet_file_from_document
    from formats.problems import FieldProblem, FormatError
    from formats.tenants_file import NUMBERED_FIELDS, check_tenants, tenants_from_document
    from formats.yaml_document import load_documents

    read = _Read()
    for file in files:
        text, source = read_input(file)
        documents = load_documents(text, source, numbered_fields=NUMBERED_FIELDS)
        if not documents:
            problem = "is empty; it must have 'regions' (a fleet) or 'tenants' at its top level"
            raise FormatError(source, [FieldProblem("", problem)])
        for document in documents:
            keys = document.keys() if isinstance(document, dict) else ()
            if "regions" in keys:
                read.fleets.append((source, fleet_file_from_document(document, source)))
            elif "tenants" in keys:
                read.tenants.append((source, tenants_from_document(document, source)))
            else:
                hint = "; a workload is submitted: topmast submit -f" if "jobs" in keys else ""
                problem = f"has neither 'regions' (a fleet) nor 'tenants' at its top level{hint}"
                raise FormatError(source, [FieldProblem("", problem)])
    for what, found in (("fleet", read.fleets), ("list of tenants", read.tenants)):
        if len(found) > 1:
            raise FormatError(found[1][0], [FieldProblem("", f"is a second {what}; apply one at a time")])
    if read.fleets and read.tenants:
        (fleet_source, described), (source, tenants) = read.fleets[0], read.tenants[0]
        problems = check_tenants(tenants, described.fleet.gpu_models())
        if problems:
            raise FormatError(source, problems)
        _check_virtual_clusters(described.fleet, tenants, f"{fleet_source} and {source}")
    return read


def _check_virtual_clusters(fleet: Fleet, tenants: Sequence[Tenant], source: str) -> None:
    """Raises FormatError, with the names of the files, where tenants own cells that the fleet has not.

    Where the libraries for that are not installed it is left to the service, which asks the same.
    """
    if missing_module(Extra.SIMULATOR) is not None:
        return
    from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters

    fleet_with_virtual_clusters(fleet, declarations_of(tenants), source)
