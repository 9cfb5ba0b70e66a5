"""Secrets that the processes of a service share: made by the first that asks, the same for all that come later."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from domain.identifiers import ClusterId
from services.database.connection import AnyConnection
from services.database.core_statements import execute
from services.database.tables.coordination import SERVICE_SECRETS
from services.security.secret_values import new_secret


async def secret_of_task_sessions(connection: AnyConnection, cluster: ClusterId) -> str:
    """From which the tokens are derived with which the tasks of this cluster report, whichever process manages it."""
    name = f"task_sessions/{cluster}"
    made = insert(SERVICE_SECRETS).values(name=name, secret=new_secret()).on_conflict_do_nothing()
    await execute(connection, made)
    found = await execute(connection, select(SERVICE_SECRETS.c.secret).where(SERVICE_SECRETS.c.name == name))
    row = await found.fetchone()
    if row is None:
        raise LookupError(f"the secret {name} was taken away while it was read")
    return str(row[0])
