"""What operators say that regions can store and links can carry."""

from __future__ import annotations

import math

from formats.problems import FieldProblem, in_quotes, suggestion
from formats.warehouse_folder import GREATEST_BYTES
from services.database.connection import AnyConnection
from services.database.core_statements import execute, upsert_rows
from services.database.tables.catalog import DATA_LINKS, DATA_REGIONS
from services.grpc_errors import InvalidArgument
from topmast.v1 import data_placement_pb2 as messages


async def declare_capacity(
    connection: AnyConnection, request: messages.DeclareDataCapacityRequest
) -> messages.DeclareDataCapacityResponse:
    """Stores it, all or nothing; raises InvalidArgument with every problem."""
    cursor = await connection.execute("SELECT region FROM regions ORDER BY region")
    known = [str(row[0]) for row in await cursor.fetchall()]
    problems = _problems(request, known)
    if problems:
        raise InvalidArgument(problems)
    storage = {region.region: region.storage_bytes for region in request.regions}
    links = {(link.source, link.target): link.bytes_per_day for link in request.links}
    await execute(connection, upsert_rows(DATA_REGIONS, ("region", "storage_bytes"), sorted(storage.items())))
    rows = [(*pair, amount) for pair, amount in sorted(links.items())]
    await execute(connection, upsert_rows(DATA_LINKS, ("source", "target", "bytes_per_day"), rows))
    return messages.DeclareDataCapacityResponse(regions=len(storage), links=len(links))


def _problems(request: messages.DeclareDataCapacityRequest, known: list[str]) -> list[FieldProblem]:
    found: list[FieldProblem] = []

    def require_known(field: str, region: str) -> None:
        if region not in known:
            found.append(
                FieldProblem(field, f"there is no region {in_quotes(region)}; {suggestion(region, known, 'region')}")
            )

    for place, region in enumerate(request.regions):
        require_known(f"regions[{place}].region", region.region)
        if not 0 <= region.storage_bytes <= GREATEST_BYTES:
            found.append(FieldProblem(f"regions[{place}].storage_bytes", f"must be from 0 to {GREATEST_BYTES}"))
    for place, link in enumerate(request.links):
        require_known(f"links[{place}].source", link.source)
        require_known(f"links[{place}].target", link.target)
        if link.source == link.target:
            found.append(FieldProblem(f"links[{place}].target", "is the source; a link leads to another region"))
        if not (math.isfinite(link.bytes_per_day) and link.bytes_per_day >= 0.0):
            found.append(FieldProblem(f"links[{place}].bytes_per_day", "must be 0 or more"))
    return found
