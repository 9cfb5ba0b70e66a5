"""What the audit log has of calls whose callers leave, and what it never has: over gRPC, by the servicer of tokens and a real database."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
import psycopg
import pytest

from services.database import audit_store, token_store
from services.database.audit_store import AuditEntry, AuditFilter
from services.database.engine import Database
from services.global_scheduler.access import AccessServicer
from services.global_scheduler.call_checks import GlobalCallChecks
from services.security.audit import begin_audit
from services.security.authentication import TokenAuthentication
from services.security.authorization import Authorization
from services.security.principal import Principal, PrincipalKind
from services.security.roles import Role
from services.security.tokens import new_token
from services.tiers.grpc_server import TierServer
from topmast.v1 import access_pb2, access_pb2_grpc, fleet_state_pb2

_PATIENCE_REAL_S = 60.0
_LOOK_EVERY_REAL_S = 0.02


@dataclass
class _Served:
    """A server of tokens, and an admin who calls it."""

    database: Database
    access: access_pb2_grpc.AccessAsyncStub
    metadata: tuple[tuple[str, str], ...]

    def revoke(self, token: str) -> grpc.aio.UnaryUnaryCall[access_pb2.RevokeTokenRequest, access_pb2.AccessToken]:
        return self.access.RevokeToken(access_pb2.RevokeTokenRequest(token=token), metadata=self.metadata)

    async def records(self, least: int = 0) -> list[AuditEntry]:
        """The newest first, once there are so many."""
        found: list[AuditEntry] = []
        while len(found) < max(least, 1):
            stored = await self.database.run(lambda connection: audit_store.load(connection, AuditFilter(), 1_000))
            found = [one.entry for one in stored]
            await asyncio.sleep(_LOOK_EVERY_REAL_S)
        return found


async def _made(database: Database, name: str, role: str) -> str:
    shown, token = new_token()
    await database.run(
        lambda connection: token_store.insert(
            connection, token.token, token.secret_hash, name, role, (), "the test", None
        )
    )
    return shown


@asynccontextmanager
async def _served(database_url: str) -> AsyncIterator[_Served]:
    async with Database(database_url) as database:
        root = await _made(database, "root", "admin")
        servicer = AccessServicer(database, require_ready=lambda: None)
        server = TierServer(
            [access_pb2.DESCRIPTOR.services_by_name["Access"]],
            lambda to: access_pb2_grpc.add_AccessServicer_to_server(servicer, to),
            authorization=Authorization(TokenAuthentication(database), GlobalCallChecks(database)),
        )
        port = await server.start("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                metadata = (("authorization", f"Bearer {root}"),)
                yield _Served(database, access_pb2_grpc.AccessStub(channel), metadata)
        finally:
            await server.stop(0)


def _run(database_url: str, story: Callable[[_Served], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(_PATIENCE_REAL_S), _served(database_url) as served:
            await story(served)

    asyncio.run(run())


async def _left_while_locked(served: _Served, table: str, token: str, database_url: str) -> None:
    """Asks to revoke the token, and leaves while that waits for the table; the table is free again afterwards."""
    # When the caller's token was used is noted now, and not for a while again.
    await served.access.WhoAmI(access_pb2.WhoAmIRequest(), metadata=served.metadata)
    async with await psycopg.AsyncConnection.connect(database_url) as holder:
        await holder.execute(f"LOCK TABLE {table} IN SHARE MODE")
        call = served.revoke(token)
        await _until_waited_for(holder, table)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def _until_waited_for(holder: psycopg.AsyncConnection, table: str) -> None:
    while True:
        waiting = await holder.execute("SELECT FROM pg_locks WHERE NOT granted AND relation = %s::regclass", (table,))
        if waiting.rowcount > 0:
            return
        await asyncio.sleep(_LOOK_EVERY_REAL_S)


def test_what_has_ended_is_recorded_when_the_caller_leaves_meanwhile(database_url: str) -> None:
    async def story(served: _Served) -> None:
        # This record is written when the call has ended: no transaction of its own has it.
        await _left_while_locked(served, "audit_log", "nothing", database_url)
        (record,) = await served.records(1)
        assert (record.action, record.subjects, record.outcome) == ("RevokeToken", ["nothing"], "NOT_FOUND")

    _run(database_url, story)


def test_never_is_a_password_in_the_audit_log() -> None:
    principal = Principal("root", Role.ADMIN, None, PrincipalKind.TOKEN)
    url = "postgresql://topmast:geheim@database/topmast"
    asked = fleet_state_pb2.DrainRequest(names=[url], reason=f"look at {url} and password=geheim")
    # In a context of its own, as each call has one.
    begin = contextvars.copy_context().run
    call = begin(begin_audit, "/topmast.v1.GlobalScheduler/Drain", asked, principal, [url])
    call.before = {"machines": {"m": [url]}}
    record = call.ended("NOT_FOUND", f"there is no machine '{url}'")
    assert "geheim" not in repr(record)
    assert record.reason == "there is no machine 'postgresql://topmast:***@database/topmast'"
