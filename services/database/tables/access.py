"""Who may call, and what was done with the right to do it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, DateTime, ForeignKey, Identity, LargeBinary, Table, Text, func, text
from sqlalchemy.dialects.postgresql import ARRAY

from services.database.tables.definition import DOCUMENT, METADATA, NAME, key, optional, required

ACCESS_TOKENS: Final = Table(
    # Bearer tokens. Times are real.
    "access_tokens",
    METADATA,
    # The part that is no secret.
    key("token", NAME),
    # SHA-256 of the part that is.
    required("secret_hash", LargeBinary),
    required("name", NAME),
    # services.security.roles.Role
    required("role", NAME),
    # Empty: all.
    required("tenants", ARRAY(Text), server_default=text("'{}'")),
    required("made_by", NAME),
    required("made_at", DateTime(timezone=True), server_default=func.now()),
    # Null: never.
    optional("expires_at", DateTime(timezone=True)),
    # Null: it was not.
    optional("revoked_at", DateTime(timezone=True)),
    required("revoked_by", NAME, server_default=text("''")),
    # To within a minute; null: it was never used.
    optional("used_at", DateTime(timezone=True)),
)

PACKAGE_OWNERS: Final = Table(
    # For which tenants a package was uploaded: only their workloads may name it.
    "package_owners",
    METADATA,
    key("package", NAME, ForeignKey("packages.package", ondelete="CASCADE")),
    key("tenant", NAME),
)

AUDIT_LOG: Final = Table(
    # What was done, or refused, of what only some may do. A trigger refuses to change or delete anything of it. Times are real.
    "audit_log",
    METADATA,
    key("record", BigInteger, Identity(always=True)),
    required("at", DateTime(timezone=True), server_default=func.clock_timestamp()),
    required("actor", NAME),
    required("actor_role", NAME),
    required("actor_kind", NAME),
    # Which token, or which subject.
    required("actor_credential", NAME),
    # The name of the call.
    required("action", NAME),
    required("subjects", ARRAY(Text)),
    # done, or the code with which it was refused.
    required("outcome", NAME),
    required("reason", Text, server_default=text("''")),
    # How it was before; null: that is not known, or there was nothing.
    optional("before", DOCUMENT),
    # What was asked for.
    optional("after", DOCUMENT),
)
