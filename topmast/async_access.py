"""Who is calling, tokens, and the audit log, for asyncio. access.py is generated from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from topmast.async_connection import AsyncConnection
from topmast.identities import (
    AccessToken,
    AuditRecord,
    Identity,
    NewToken,
    access_token_from_proto,
    audit_page_from_proto,
    identity_from_proto,
)
from topmast.messages import message_of, strings, whole_number
from topmast.v1 import access_pb2 as messages
from topmast.v1 import access_pb2_grpc

_LARGEST_PAGE = 1_000


class AsyncAccess:
    """What a client can ask about callers; `client.access` is one. Every method raises TopmastError, and TypeError for unknown keywords."""

    def __init__(self, connection: AsyncConnection, address: str, peer: str) -> None:
        self._connection = connection
        self._address = address
        self._peer = peer

    @property
    def _stub(self) -> access_pb2_grpc.AccessAsyncStub:
        return access_pb2_grpc.AccessStub(self._connection.channel(self._address))

    async def who_am_i(self) -> Identity:
        """Who is calling, as the service sees it."""
        return identity_from_proto(await self._connection.call(self._stub.WhoAmI, messages.WhoAmIRequest(), self._peer))

    async def create_token(
        self, name: str, role: str, *, tenants: Sequence[str] = (), expires_after_s: float | None = None
    ) -> NewToken:
        """Makes a token of a role (admin, operator, tenant, read-only, tier); of tenants, where the role is for some.

        For admins. `expires_after_s` None: it never expires.
        """
        request = message_of(
            messages.CreateTokenRequest,
            name=name,
            role=role,
            tenants=strings("tenants", tenants),
            expires_after_s=expires_after_s,
        )
        made = await self._connection.call(self._stub.CreateToken, request, self._peer)
        return NewToken(made.secret, access_token_from_proto(made.token))

    async def tokens(self) -> tuple[AccessToken, ...]:
        """All that were made, the newest first, without their secrets. For admins."""
        answer = await self._connection.call(self._stub.ListTokens, messages.ListTokensRequest(), self._peer)
        return tuple(map(access_token_from_proto, answer.tokens))

    async def revoke_token(self, token: str) -> AccessToken:
        """From now on (within five seconds) it is refused; `token` is its id. For admins."""
        request = message_of(messages.RevokeTokenRequest, token=token)
        return access_token_from_proto(await self._connection.call(self._stub.RevokeToken, request, self._peer))

    async def audit(
        self, *, since_s: float = 0.0, actor: str = "", action: str = "", limit: int | None = None
    ) -> AsyncGenerator[AuditRecord, None]:
        """What was done, or refused, of what is recorded, the newest first. For admins."""
        limit = whole_number("limit", limit, least=0)
        listed, before = 0, 0
        while limit is None or listed < limit:
            request = message_of(
                messages.ListAuditRecordsRequest,
                page_size=_LARGEST_PAGE if limit is None else min(limit - listed, _LARGEST_PAGE),
                before_record=before,
                since_s=since_s,
                actor=actor,
                action=action,
            )
            answer = await self._connection.call(self._stub.ListAuditRecords, request, self._peer)
            page = audit_page_from_proto(answer)
            for record in page.records:
                yield record
            listed += len(page.records)
            before = page.next_before_record
            if not before:
                return
