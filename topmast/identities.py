"""Who calls, the tokens by which callers are known, and the audit log, as a client gets them. Times are real."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topmast.v1 import access_pb2


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller, as the service sees it. `tenants` empty: all; `expires_s` None: never."""

    name: str
    role: str
    tenants: tuple[str, ...]
    kind: str
    """token, oidc, certificate, or unasked: the service asks nobody."""
    credential: str
    expires_s: float | None


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token without its secret; `token` is the part of it that may be known. `tenants` empty: all."""

    token: str
    name: str
    role: str
    tenants: tuple[str, ...]
    made_by: str
    made_s: float
    expires_s: float | None
    revoked: bool
    revoked_by: str
    used_s: float | None
    """To within a minute; None: never."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that has just been made; `secret` is told here and never again."""

    secret: str
    token: AccessToken

    def __repr__(self) -> str:
        return f"NewToken(secret=..., token={self.token!r})"


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What somebody did, or was not allowed to do."""

    record: int
    at_s: float
    actor: str
    actor_role: str
    actor_kind: str
    actor_credential: str
    action: str
    subjects: tuple[str, ...]
    outcome: str
    """done, or the code with which it was refused."""
    reason: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Some records, the newest first; `next_before_record` is 0 on the last page."""

    records: tuple[AuditRecord, ...]
    next_before_record: int


def identity_from_proto(message: access_pb2.Identity) -> Identity:
    return Identity(
        message.name,
        message.role,
        tuple(message.tenants),
        message.kind,
        message.credential,
        message.expires_s if message.HasField("expires_s") else None,
    )


def access_token_from_proto(message: access_pb2.AccessToken) -> AccessToken:
    return AccessToken(
        message.token,
        message.name,
        message.role,
        tuple(message.tenants),
        message.made_by,
        message.made_s,
        message.expires_s if message.HasField("expires_s") else None,
        message.revoked,
        message.revoked_by,
        message.used_s if message.HasField("used_s") else None,
    )


def audit_page_from_proto(message: access_pb2.ListAuditRecordsResponse) -> AuditPage:
    return AuditPage(tuple(map(_record_from_proto, message.records)), message.next_before_record)


def _record_from_proto(message: access_pb2.AuditRecord) -> AuditRecord:
    return AuditRecord(
        message.record,
        message.at_s,
        message.actor,
        message.actor_role,
        message.actor_kind,
        message.actor_credential,
        message.action,
        tuple(message.subjects),
        message.outcome,
        message.reason,
        json.loads(message.before) if message.before else None,
        json.loads(message.after) if message.after else None,
    )
