"""Finds out who is calling, by the token that came with the call.

What was found is kept for a moment, so that a token that was revoked is refused within `KEPT_REAL_S`; streams that go on are looked at
again as often, so that they end within twice that: five seconds. While the database is away nobody can revoke anything, and
tokens that were known stay valid until they expire.
"""

from __future__ import annotations

import asyncio
import math
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
"""Guesses come before any other limit of a tier: so many connections of the database at most are asked for because of them. Tokens
that are known are looked at again beside them, so that nobody keeps one alive that was revoked by guessing others."""

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

    stored: StoredToken
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
        self._absent: OrderedDict[str, float] = OrderedDict()
        """Until when it counts that there is no such token. Apart from those that there are, which no guesses push out."""
        self._looking: dict[str, asyncio.Task[StoredToken | None]] = {}
        self._guessed: set[str] = set()
        """Those of them of which nothing is known yet."""
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
        if self._seconds() < self._absent.get(token.token, -math.inf):
            return None
        if found is None and token.token not in self._looking and len(self._guessed) >= MOST_LOOKED_UP_AT_ONCE:
            raise Unavailable("too many tokens are being looked up; try again")
        try:
            stored = await self._look_up(token.token, is_guess=found is None)
        except DatabaseUnavailable as error:
            if found is not None:
                return found.stored
            raise Unavailable("the database cannot be reached, so that no token can be looked up; try again") from error
        self._keep(token.token, stored)
        return stored

    def _keep(self, token: str, stored: StoredToken | None) -> None:
        until_real_s = self._seconds() + KEPT_REAL_S
        if stored is None:
            self._found.pop(token, None)
            self._absent[token] = until_real_s
            self._absent.move_to_end(token)
        else:
            self._absent.pop(token, None)
            self._found[token] = _Found(stored, until_real_s)
            self._found.move_to_end(token)
        while len(self._absent) > _MOST_KEPT:
            self._absent.popitem(last=False)
        while len(self._found) > _MOST_KEPT:
            forgotten, _ = self._found.popitem(last=False)
            self._noted_real_s.pop(forgotten, None)

    async def _look_up(self, token: str, *, is_guess: bool) -> StoredToken | None:
        """Once for all calls that ask for it at the same time."""
        looking = self._looking.get(token)
        if looking is None:
            looking = self._looking[token] = asyncio.create_task(self._load(token))
            if is_guess:
                self._guessed.add(token)
            looking.add_done_callback(lambda _: self._looked_up(token))
        return await asyncio.shield(looking)

    def _looked_up(self, token: str) -> None:
        self._looking.pop(token, None)
        self._guessed.discard(token)

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
