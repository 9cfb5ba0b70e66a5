"""Finds out who is calling, by the token that came with the call.

What was found is kept for a moment, so that a token that was revoked is refused within `KEPT_REAL_S`; streams that go on are looked at
again as often, so that they end within twice that: five seconds. While the database is away nobody can revoke anything, and
tokens that were known stay valid until they expire.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from services.database import token_store
from services.database.engine import Database
from services.database.errors import DatabaseFull, DatabaseUnavailable
from services.database.token_store import StoredToken
from services.grpc_errors import Unavailable
from services.security import refusals
from services.security.principal import UNASKED, Principal, PrincipalKind
from services.security.roles import Role
from services.security.tokens import BearerToken, parse_token

KEPT_REAL_S = 2.5
"""So long what was found counts."""

_NOTED_EVERY_REAL_S = 60.0
"""So often at most it is written when a token was used."""

MOST_LOOKED_UP_AT_ONCE = 32
"""Guesses come before any other limit of a tier: so many connections of the database at most are asked for because of them."""

_MOST_KEPT = 4_096
_PATIENCE_REAL_S = 5.0


class Authentication(Protocol):
    """Says who presents a token."""

    async def principal(self, presented: str | None) -> Principal:
        """Raises Unauthenticated, and Unavailable while that cannot be found out. None: no token came."""
        ...


class NobodyAsked:
    """Whoever calls may do everything."""

    async def principal(self, presented: str | None) -> Principal:
        return UNASKED


@dataclass(slots=True)
class _Found:
    """What the database said of a token."""

    stored: StoredToken | None
    until_real_s: float
    """On the monotonic clock."""


class TokenAuthentication:
    """Knows the tokens of the database, and what another kind of token says (`others`), where there is one."""

    def __init__(
        self,
        database: Database,
        others: Callable[[str], Awaitable[Principal | None]] | None = None,
        *,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`others` returns None for what is no token of its kind; it raises Unauthenticated. `seconds` never go back."""
        self._seconds = seconds
        self._database = database
        self._others = others
        self._found: OrderedDict[str, _Found] = OrderedDict()
        self._looking: dict[str, asyncio.Task[StoredToken | None]] = {}
        self._noted_real_s: dict[str, float] = {}

    async def principal(self, presented: str | None) -> Principal:
        if not presented:
            raise refusals.no_token()
        token = parse_token(presented)
        if token is None:
            other = None if self._others is None else await self._others(presented)
            if other is None:
                raise refusals.malformed_token()
            return other
        stored = await self._stored(token)
        if stored is None or not token.matches(stored.secret_hash):
            raise refusals.unknown_token()
        if stored.revoked:
            raise refusals.revoked(stored.name)
        if stored.expires_real_s is not None and stored.expires_real_s <= time.time():
            raise refusals.expired(stored.name)
        tenants = frozenset(stored.tenants) if stored.tenants else None
        return Principal(
            stored.name, Role(stored.role), tenants, PrincipalKind.TOKEN, stored.token, stored.expires_real_s
        )

    async def _stored(self, token: BearerToken) -> StoredToken | None:
        found = self._found.get(token.token)
        if found is not None and self._seconds() < found.until_real_s:
            return found.stored
        if token.token not in self._looking and len(self._looking) >= MOST_LOOKED_UP_AT_ONCE:
            if found is not None and found.stored is not None:
                # Its end counts all the same; whether it was revoked is seen when fewer ask.
                return found.stored
            raise Unavailable("too many tokens are being looked up; try again")
        try:
            stored = await self._look_up(token.token)
        except DatabaseUnavailable as error:
            if found is not None and found.stored is not None:
                return found.stored
            raise Unavailable("the database cannot be reached, so that no token can be looked up; try again") from error
        self._found[token.token] = _Found(stored, self._seconds() + KEPT_REAL_S)
        self._found.move_to_end(token.token)
        while len(self._found) > _MOST_KEPT:
            forgotten, _ = self._found.popitem(last=False)
            self._noted_real_s.pop(forgotten, None)
        return stored

    async def _look_up(self, token: str) -> StoredToken | None:
        """Once for all calls that ask for it at the same time."""
        looking = self._looking.get(token)
        if looking is None:
            looking = self._looking[token] = asyncio.create_task(self._load(token))
            looking.add_done_callback(lambda _: self._looking.pop(token, None))
        return await asyncio.shield(looking)

    async def _load(self, token: str) -> StoredToken | None:
        stored = await self._database.run(
            lambda connection: token_store.load(connection, token), give_up_after_s=_PATIENCE_REAL_S
        )
        noted = self._noted_real_s.get(token)
        if stored is not None and (noted is None or self._seconds() - noted > _NOTED_EVERY_REAL_S):
            self._noted_real_s[token] = self._seconds()
            try:
                await self._database.run(lambda connection: token_store.note_used(connection, token))
            except (DatabaseFull, DatabaseUnavailable):
                # When it was used is said to people; nobody is refused for it.
                self._noted_real_s.pop(token, None)
        return stored
