"""Does the fleet have the virtual clusters of the tenants? Asked whenever one of the two is replaced, in that transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from cluster_manager.cells.declared import CellsProblem, declarations_of, field_problems, matched
from domain.declared_cells import Declarations
from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.problems import FieldProblem
from services.database import fleet_store, tenant_store
from services.database.connection import AnyConnection
from services.database.revision_store import Subject, lock_revision
from services.global_scheduler.replacement_checks import fleet_field, tenants_field
from services.grpc_errors import InvalidArgument, PreconditionFailed

SHOWN_PROBLEMS = 5


async def require_match(connection: AnyConnection, fleet: Fleet | None, tenants: Sequence[Tenant] | None) -> None:
    """Whether what is given matches what is given with it, or else (None) what is there; and keeps both from changing.

    Raises InvalidArgument that names the fields, and PreconditionFailed where a fleet has not the virtual clusters of
    tenants that are not replaced with it.
    """
    # Every replacement of either locks both in this order: so neither changes before this transaction ends.
    await lock_revision(connection, Subject.FLEET)
    await lock_revision(connection, Subject.TENANTS)
    declarations = declarations_of(await tenant_store.load_tenants(connection) if tenants is None else tenants)
    if fleet is None:
        if not any(declarations.values()):
            return
        stored, _ = await fleet_store.load_fleet(connection)
        _refuse((await asyncio.to_thread(matched, stored, declarations)).problems, declarations, "tenants")
        return
    problems = (await asyncio.to_thread(matched, fleet, declarations)).problems
    if tenants is not None:
        _refuse(problems, declarations, "tenants.tenants")
        return
    _refuse([problem for problem in problems if problem.tenant is None], declarations, "tenants")
    if problems:
        raise PreconditionFailed("VIRTUAL_CLUSTERS", "fleet", _of_stored(problems))


def _refuse(problems: Sequence[CellsProblem], declarations: Declarations, path: str) -> None:
    if problems:
        named = field_problems(problems, declarations)
        raise InvalidArgument([FieldProblem(_in_request(one.field, path), one.description) for one in named])


def _in_request(field: str, path: str) -> str:
    return tenants_field(field, path) if field.startswith("tenants[") else fleet_field(field)


def _of_stored(problems: Sequence[CellsProblem]) -> str:
    """In one sentence; the tenants are not in the request, so there are no paths in it that could be named."""
    named = "; ".join(
        f"tenant {problem.tenant}, {problem.field}: {problem.description}" for problem in problems[:SHOWN_PROBLEMS]
    )
    more = f"; and {len(problems) - SHOWN_PROBLEMS} more" if len(problems) > SHOWN_PROBLEMS else ""
    # The remedy comes first: long sentences are cut.
    return (
        "the fleet has not the virtual clusters of its tenants; apply both together, or first such tenants as it has the"
        f" cells for: {named}{more}"
    )
