"""The tokens of a service that lives on one machine, as files that only its user can read: one for people, one for its tiers."""

from __future__ import annotations

import os
import secrets
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from services.database import audit_store, token_store
from services.database.audit_store import AuditEntry
from services.database.connection import AnyConnection
from services.security.outgoing_token import TokenFile
from services.security.roles import Role
from services.security.tokens import new_token, parse_token

SECRETS: Final = "secrets"
ADMIN_TOKEN: Final = "admin.token"  # noqa: S105 -- the name of a file
TIER_TOKEN: Final = "tier.token"  # noqa: S105 -- the name of a file

_MADE_BY = "topmast up"


def admin_token_file(home: Path) -> Path:
    """Clients of this home find their token there."""
    return home / SECRETS / ADMIN_TOKEN


def tier_token_file(home: Path) -> Path:
    """Tiers of this home call each other with it."""
    return home / SECRETS / TIER_TOKEN


def home_token(home: Path) -> str | None:
    """With which people's programs call the service of this home; None: it has none, or it is another user's."""
    return TokenFile(admin_token_file(home)).token()


async def keep_home_tokens(connection: AnyConnection, home: Path) -> None:
    """Makes those that are missing, or not valid any more (another database, a token that was revoked)."""
    await keep_token_file(connection, admin_token_file(home), Role.ADMIN, _user_name(), _MADE_BY)
    await keep_token_file(connection, tier_token_file(home), Role.TIER, "tiers", _MADE_BY)


async def keep_token_file(
    connection: AnyConnection,
    file: Path,
    role: Role,
    name: str,
    made_by: str,
    tenants: tuple[str, ...] = (),
    expires_at: datetime | None = None,
) -> bool:
    """Whether a token had to be made, because the file had none of that role that is valid."""
    present = TokenFile(file).token()
    if present is not None and await _is_valid(connection, present, role):
        return False
    shown, token = new_token()
    await token_store.insert(connection, token.token, token.secret_hash, name, role, tenants, made_by, expires_at)
    entry = AuditEntry(made_by, "", "local", "", "CreateToken", [token.token], after={"name": name, "role": role.value})
    await audit_store.append(connection, entry)
    write_secret(file, f"{shown}\n")
    return True


async def _is_valid(connection: AnyConnection, text: str, role: Role) -> bool:
    token = parse_token(text)
    stored = None if token is None else await token_store.load(connection, token.token)
    if token is None or stored is None or stored.revoked or stored.role != role:
        return False
    return token.matches(stored.secret_hash) and (stored.expires_real_s is None or stored.expires_real_s > time.time())


def write_secret(file: Path, text: str) -> None:
    """Replaces the file as a whole; nobody else can read it at any moment."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(text)
        half.replace(file)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _user_name() -> str:
    return os.environ.get("USER") or os.environ.get("LOGNAME") or f"user {os.getuid()}"
