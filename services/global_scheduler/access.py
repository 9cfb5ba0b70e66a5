"""Who is calling, and the tokens by which callers are known: made, listed, revoked."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeAlias

import grpc
from google.protobuf.json_format import MessageToDict

from services.database import audit_store, tenant_store, token_store
from services.database.audit_store import AuditFilter, AuditRecord
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.token_store import StoredToken
from services.global_scheduler.request_checks import GREATEST_PAGE, Checks
from services.grpc_errors import NotFound
from services.security.audit import audited
from services.security.principal import present_principal
from services.security.roles import Role
from services.security.tokens import new_token, parse_token, scope_problem
from topmast.v1 import access_pb2 as messages
from topmast.v1 import access_pb2_grpc

_PATIENCE_REAL_S = 10.0
_GREATEST_TENANTS = 1_000
_LONGEST_LIFE_S = 100 * 365 * 86_400.0

Context: TypeAlias = "grpc.aio.ServicerContext[object, object]"


class AccessServicer(access_pb2_grpc.AccessServicer):
    """The gRPC face of identities and tokens."""

    def __init__(self, database: Database, *, require_ready: Callable[[], None]) -> None:
        """`require_ready` raises Unavailable while calls cannot be answered."""
        self._database = database
        self._require_ready = require_ready

    async def WhoAmI(self, request: messages.WhoAmIRequest, context: Context) -> messages.Identity:
        principal = present_principal()
        return messages.Identity(
            name=principal.name,
            role=principal.role.value,
            tenants=sorted(principal.tenants or ()),
            kind=principal.kind.value,
            credential=principal.credential,
            expires_s=principal.expires_real_s,
        )

    async def CreateToken(self, request: messages.CreateTokenRequest, context: Context) -> messages.CreateTokenResponse:
        self._require_ready()
        role, expires_at = _checked(request)
        shown, token = new_token()
        made_by, tenants = present_principal().name, tuple(dict.fromkeys(request.tenants))

        async def write(connection: AnyConnection) -> StoredToken:
            await _require_tenants(connection, tenants)
            return await token_store.insert(
                connection, token.token, token.secret_hash, request.name, role.value, tenants, made_by, expires_at
            )

        stored = await self._database.run(audited(write), give_up_after_s=_PATIENCE_REAL_S)
        return messages.CreateTokenResponse(secret=shown, token=_token_message(stored))

    async def ListTokens(self, request: messages.ListTokensRequest, context: Context) -> messages.ListTokensResponse:
        self._require_ready()
        stored = await self._database.run(token_store.list_all, snapshot=True, give_up_after_s=_PATIENCE_REAL_S)
        return messages.ListTokensResponse(tokens=map(_token_message, stored))

    async def RevokeToken(self, request: messages.RevokeTokenRequest, context: Context) -> messages.AccessToken:
        self._require_ready()
        checks = Checks()
        if not checks.name("token", request.token) and not request.token:
            checks.add("token", "is empty; name the id of a token (topmast token list)")
        whole = parse_token(request.token)
        if whole is not None:
            checks.add("token", f"is a whole token, with its secret; name its id, the middle part: {whole.token}")
        checks.raise_problems()
        by = present_principal().name

        async def write(connection: AnyConnection) -> StoredToken:
            stored = await token_store.revoke(connection, request.token, by)
            if stored is None:
                raise NotFound("token", request.token, "topmast token list shows those that there are")
            return stored

        async def before(connection: AnyConnection) -> Mapping[str, Any]:
            stored = await token_store.load(connection, request.token)
            return {} if stored is None else MessageToDict(_token_message(stored), preserving_proto_field_name=True)

        stored = await self._database.run(audited(write, before), give_up_after_s=_PATIENCE_REAL_S)
        return _token_message(stored)

    async def ListAuditRecords(
        self, request: messages.ListAuditRecordsRequest, context: Context
    ) -> messages.ListAuditRecordsResponse:
        self._require_ready()
        checks = Checks()
        page_size = checks.count("page_size", request.page_size, 100, GREATEST_PAGE)
        since_real_s = checks.time("since_s", request.since_s)
        for field in ("actor", "action"):
            checks.text(field, getattr(request, field))
        if not 0 <= request.before_record < 2**63:
            checks.add("before_record", f"must be 0 (the newest) or the place of a record, not {request.before_record}")
        checks.raise_problems()
        wanted = AuditFilter(request.before_record or None, since_real_s, request.actor, request.action)
        found = await self._database.run(
            lambda connection: audit_store.load(connection, wanted, page_size + 1),
            snapshot=True,
            give_up_after_s=_PATIENCE_REAL_S,
        )
        shown = found[:page_size]
        return messages.ListAuditRecordsResponse(
            records=map(_record_message, shown),
            next_before_record=shown[-1].record if len(found) > page_size else 0,
        )


def _checked(request: messages.CreateTokenRequest) -> tuple[Role, datetime | None]:
    """Its role and when it expires. Raises InvalidArgument."""
    checks = Checks()
    if not checks.name("name", request.name) and not request.name:
        checks.add("name", "is empty; say whose the token is")
    if len(request.tenants) > _GREATEST_TENANTS:
        checks.add("tenants", f"are {len(request.tenants)}; at most {_GREATEST_TENANTS} are possible")
        checks.raise_problems()
    for index, tenant in enumerate(request.tenants):
        if not checks.name(f"tenants[{index}]", tenant) and not tenant:
            checks.add(f"tenants[{index}]", "is empty; name a tenant")
    role = None
    try:
        role = Role(request.role)
    except ValueError:
        checks.add("role", f"{request.role!r} does not exist; it must be one of {', '.join(Role)}")
    if role is not None:
        problem = scope_problem(role, request.tenants)
        if problem is not None:
            checks.add(*problem)
    expires_at = None
    if request.HasField("expires_after_s"):
        if not (math.isfinite(request.expires_after_s) and 0 < request.expires_after_s <= _LONGEST_LIFE_S):
            checks.add("expires_after_s", "must be more than 0 s and at most a hundred years; leave it out for never")
        else:
            expires_at = datetime.fromtimestamp(time.time() + request.expires_after_s, UTC)
    checks.raise_problems()
    if role is None:
        raise AssertionError("a role that does not exist is a problem")
    return role, expires_at


async def _require_tenants(connection: AnyConnection, tenants: tuple[str, ...]) -> None:
    """Raises NotFound for the first that there is not: a slip would make a token that is good for nothing."""
    if not tenants:
        return
    known = {str(one.tenant) for one in await tenant_store.load_tenants(connection)}
    for tenant in tenants:
        if tenant not in known:
            raise NotFound("tenant", tenant, "topmast tenants shows those that there are")


def _record_message(stored: AuditRecord) -> messages.AuditRecord:
    entry = stored.entry
    return messages.AuditRecord(
        record=stored.record,
        at_s=stored.at_real_s,
        actor=entry.actor,
        actor_role=entry.actor_role,
        actor_kind=entry.actor_kind,
        actor_credential=entry.actor_credential,
        action=entry.action,
        subjects=entry.subjects,
        outcome=entry.outcome,
        reason=entry.reason,
        before="" if entry.before is None else json.dumps(entry.before, ensure_ascii=False),
        after="" if entry.after is None else json.dumps(entry.after, ensure_ascii=False),
    )


def _token_message(stored: StoredToken) -> messages.AccessToken:
    return messages.AccessToken(
        token=stored.token,
        name=stored.name,
        role=stored.role,
        tenants=stored.tenants,
        made_by=stored.made_by,
        made_s=stored.made_real_s,
        expires_s=stored.expires_real_s,
        revoked=stored.revoked,
        revoked_by=stored.revoked_by,
        used_s=stored.used_real_s,
    )
