"""How much a tenant has waiting, and whether submissions have been accepted before."""

from __future__ import annotations

from collections.abc import Sequence

from domain.identifiers import TenantId
from domain.life_cycle import ENDED, State
from services.database.connection import AnyConnection
from services.database.state_guards import quoted

_UNENDED = quoted(ENDED)


async def count_pending(connection: AnyConnection, tenant: TenantId) -> int:
    """How many of its workloads have not ended and have no live attempt: queued, held, or elements that await their turn."""
    # As the index `workloads_unended` has it, so that what has ended is not read.
    cursor = await connection.execute(
        f"SELECT count(*) FROM workloads WHERE tenant = %s AND state NOT IN ({_UNENDED}) AND state = %s",
        (tenant, State.PENDING.value),
    )
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def all_are_known(connection: AnyConnection, keys: Sequence[tuple[TenantId, str]]) -> bool:
    """Whether each of these idempotency keys of tenants has been used."""
    cursor = await connection.execute(
        """SELECT bool_and(w.workload IS NOT NULL)
             FROM unnest(%s::text[], %s::text[]) AS u (tenant, idempotency_key)
             LEFT JOIN workloads w ON w.tenant = u.tenant AND w.idempotency_key = u.idempotency_key""",
        ([tenant for tenant, _ in keys], [key for _, key in keys]),
    )
    row = await cursor.fetchone()
    return row is not None and bool(row[0])
