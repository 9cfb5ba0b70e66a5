"""topmast apply: fleets and tenants, from files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.files import read_input
from services.command_line.options import AddressOption, FilesOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.wording import counted

if TYPE_CHECKING:
    from domain.tenant import Tenant
    from formats.fleet_file import FleetFile


@dataclass(slots=True)
class _Read:
    """What the files describe, each with the file that does."""

    fleets: list[tuple[str, FleetFile]] = field(default_factory=list)
    tenants: list[tuple[str, tuple[Tenant, ...]]] = field(default_factory=list)


def apply(
    files: FilesOption,
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
        for _, described in read.fleets:
            applied = client.apply_fleet(fleet_to_proto(described.fleet, described.tables), tenants)
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
    if as_json:
        show_json(done)


def _read(files: list[Path]) -> _Read:
    """Everything, checked: each file by itself, and tenants against the fleet that comes with them."""
    from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters
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
        fleet_with_virtual_clusters(described.fleet, declarations_of(tenants), f"{fleet_source} and {source}")
    return read
