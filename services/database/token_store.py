"""The bearer tokens of the service: hashes, what they are for, and when they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import TupleRow

from services.database.connection import AnyConnection

_COLUMNS = """token, secret_hash, name, role, tenants, made_by, extract(epoch FROM made_at)::float8,
              extract(epoch FROM expires_at)::float8, revoked_at IS NOT NULL, revoked_by,
              extract(epoch FROM used_at)::float8"""


@dataclass(frozen=True, slots=True)
class StoredToken:
    """One token, without its secret. Times are real."""

    token: str
    """Its public id."""
    secret_hash: bytes
    name: str
    role: str
    tenants: tuple[str, ...]
    """Empty: all."""
    made_by: str
    made_real_s: float
    expires_real_s: float | None
    revoked: bool
    revoked_by: str
    used_real_s: float | None
    """To within a minute; None: never."""


async def load(connection: AnyConnection, token: str) -> StoredToken | None:
    """None: there is none of that id."""
    cursor = await connection.execute(f"SELECT {_COLUMNS} FROM access_tokens WHERE token = %s", (token,))
    row = await cursor.fetchone()
    return None if row is None else _stored(row)


async def insert(
    connection: AnyConnection,
    token: str,
    secret_hash: bytes,
    name: str,
    role: str,
    tenants: Sequence[str],
    made_by: str,
    expires_at: datetime | None,
) -> StoredToken:
    """It is valid from the commit on."""
    cursor = await connection.execute(
        f"""INSERT INTO access_tokens (token, secret_hash, name, role, tenants, made_by, expires_at)
            VALUES (%s, %s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}""",
        (token, secret_hash, name, role, sorted(tenants), made_by, expires_at),
    )
    row = await cursor.fetchone()
    if row is None:
        raise LookupError("the token was not stored")
    return _stored(row)


async def revoke(connection: AnyConnection, token: str, by: str) -> StoredToken | None:
    """It is refused from now on; who revoked it first is right. None: there is none of that id."""
    cursor = await connection.execute(
        f"""UPDATE access_tokens SET revoked_at = coalesce(revoked_at, now()),
                   revoked_by = CASE WHEN revoked_at IS NULL THEN %s ELSE revoked_by END
             WHERE token = %s RETURNING {_COLUMNS}""",
        (by, token),
    )
    row = await cursor.fetchone()
    return None if row is None else _stored(row)


async def note_used(connection: AnyConnection, token: str) -> None:
    """It was used just now."""
    await connection.execute("UPDATE access_tokens SET used_at = now() WHERE token = %s", (token,))


async def list_all(connection: AnyConnection) -> list[StoredToken]:
    """The newest first."""
    cursor = await connection.execute(f"SELECT {_COLUMNS} FROM access_tokens ORDER BY made_at DESC, token")
    return [_stored(row) for row in await cursor.fetchall()]


def _stored(row: TupleRow) -> StoredToken:
    token, secret_hash, name, role, tenants, made_by, made, expires, revoked, revoked_by, used = row
    return StoredToken(
        token, bytes(secret_hash), name, role, tuple(tenants), made_by, made, expires, revoked, revoked_by, used
    )
