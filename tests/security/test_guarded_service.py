"""A service that asks who is calling: tokens made, used and revoked, packages, events, and what the audit log has of it all."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
from typer.testing import CliRunner

from services.command_line.main import app
from services.security.tokens import parse_token
from tests.inference.command_process import TOPMAST
from tests.security.guarded_service import FOREIGN, OWN, PACKAGE, GuardedService, guarded_service
from topmast import (
    AsyncClient,
    AuditRecord,
    InvalidArgumentError,
    NotAllowedError,
    NotFoundError,
    PreconditionError,
    UnauthenticatedError,
)
from topmast.v1 import workload_pb2
from topmast.v1.cluster_manager_pb2 import OpenSessionRequest
from topmast.v1.cluster_manager_pb2_grpc import ClusterManagerStub

_PATIENCE_REAL_S = 240.0
"""A guard against hangs, not a measure of speed."""

_WIDE = {"COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"}


async def _tokens(guarded: GuardedService, admin: AsyncClient) -> None:
    made = await admin.access.create_token("alice", "tenant", tenants=[OWN], expires_after_s=3_600.0)
    assert made.secret not in repr(made)
    async with guarded.client(made.secret) as alice:
        me = await alice.access.who_am_i()
        assert (me.name, me.role, me.tenants, me.kind) == ("alice", "tenant", (OWN,), "token")
        following = alice.events(follow=True)
        assert (await anext(following)).tenant == OWN
        await admin.access.revoke_token(made.token.token)
        # A stream that is under way ends, too.
        with pytest.raises(UnauthenticatedError, match="token alice was revoked; pass one in TOPMAST_TOKEN"):
            async for _ in following:
                pass
        with pytest.raises(UnauthenticatedError, match="was revoked"):
            await alice.access.who_am_i()
    me = await admin.access.who_am_i()
    known = {token.token: token for token in await admin.access.tokens()}
    assert (known[made.token.token].revoked, known[made.token.token].revoked_by) == (True, me.name)
    with pytest.raises(
        InvalidArgumentError, match="role: 'root' does not exist; it must be one of admin, operator, tenant"
    ):
        await admin.access.create_token("bob", "root")
    with pytest.raises(InvalidArgumentError, match="tenants: are missing: role tenant acts for tenants"):
        await admin.access.create_token("bob", "tenant")
    with pytest.raises(InvalidArgumentError, match="expires_after_s: must be more than 0 s"):
        await admin.access.create_token("bob", "admin", expires_after_s=-5.0)
    with pytest.raises(NotFoundError, match="there is no tenant 'acne'"):
        await admin.access.create_token("bob", "tenant", tenants=["acne"])
    with pytest.raises(NotFoundError, match="there is no token 'nothing'"):
        await admin.access.revoke_token("nothing")


async def _isolation(guarded: GuardedService) -> None:
    async with guarded.client(guarded.tokens["tenant"]) as tenant:
        seen = [one.workload async for one in tenant.list()]
        assert sorted(seen) == sorted([guarded.running[OWN], guarded.waiting[OWN]])
        assert {event.tenant async for event in tenant.events()} == {OWN}
        assert sum((await tenant.status()).workloads.values()) == len(seen)
        assert {one.tenant for one in (await tenant.queue()).entries} == {OWN}
        both = [guarded.waiting[OWN], guarded.waiting[FOREIGN]]
        with pytest.raises(NotFoundError, match=f"there is no workload '{guarded.waiting[FOREIGN]}'"):
            await tenant.hold(both)
        assert (await tenant.get(guarded.waiting[OWN])).held_by == ""
        asked = workload_pb2.WorkloadSpecification(name="asked", tenant=FOREIGN)
        with pytest.raises(
            InvalidArgumentError, match=f"there is no tenant '{FOREIGN}' for whom you may submit; yours: {OWN}"
        ):
            await tenant.submit(asked)
        # Another tenant's package, whose name is known.
        asked = workload_pb2.WorkloadSpecification(name="asked", tenant=OWN, package=PACKAGE)
        with pytest.raises(PreconditionError, match="is not stored here; upload its folder again"):
            await tenant.submit(asked)
        with pytest.raises(NotAllowedError, match="has role tenant, and Drain is for admin or operator"):
            await tenant.drain(["east"])
        async with guarded.client(guarded.admin_token) as admin:
            # Streams share looks, and not what is seen.
            watched = [anext(client.watch(name)) for client in (admin, tenant) for name in (both[1], both[0], both[1])]
            told = await asyncio.gather(*watched, return_exceptions=True)
        assert [getattr(one, "workload", None) for one in told] == [both[1], both[0], both[1], None, both[0], None]
        assert all(isinstance(told[place], NotFoundError) for place in (3, 5))


async def _nobody(guarded: GuardedService) -> None:
    """The requests of callers without a token are not even read."""
    for tier, method in (
        ("global", "GlobalScheduler/SubmitWorkload"),
        ("regional", "RegionalScheduler/GetInventory"),
        ("cluster", "ClusterManager/GetStatus"),
    ):
        async with guarded.channel(tier) as channel:
            ask: Any = channel.unary_unary(f"/topmast.v1.{method}")
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(b"\xff")
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, refused.value.details()


async def _audit(guarded: GuardedService, admin: AsyncClient) -> None:
    async with guarded.client(guarded.tokens["operator"]) as operator:
        await operator.cancel(guarded.waiting[FOREIGN], reason="it blocks others")
        with pytest.raises(NotFoundError):
            await operator.cancel("w0000000000000")
        await operator.drain(["east-a-m0"], reason="fans", within_s=3_600.0)
    by_operator = [one async for one in admin.access.audit(actor="operator")]
    drained, failed, cancelled = by_operator
    assert (drained.action, drained.subjects, drained.outcome) == ("Drain", ("east-a-m0",), "done")
    assert drained.before is not None
    assert drained.before["machines"] == {"east-a-m0": "up"}
    assert (drained.after or {})["reason"] == "fans"
    assert (failed.action, failed.outcome) == ("CancelWorkload", "NOT_FOUND")
    assert (cancelled.action, cancelled.subjects) == ("CancelWorkload", (guarded.waiting[FOREIGN],))
    assert (cancelled.before or {})[guarded.waiting[FOREIGN]]["tenant"] == FOREIGN
    refused = [one async for one in admin.access.audit(actor="tenant")]
    assert [(one.action, one.outcome) for one in refused] == [("Drain", "PERMISSION_DENIED")]
    made = [one async for one in admin.access.audit(action="CreateToken", limit=100)]
    assert [one.outcome for one in made].count("INVALID_ARGUMENT") == 3
    # What was done is recorded once.
    assert sum(one.outcome == "done" and one.actor_kind == "token" for one in made) == 1


async def _requeued(guarded: GuardedService, admin: AsyncClient) -> None:
    """What has ended is submitted anew after the transaction that looks: there is one record, as it ended."""
    ended = guarded.waiting[FOREIGN]
    async with guarded.client(guarded.tokens["operator"]) as operator:
        with pytest.raises(InvalidArgumentError, match="idempotency_key: must be at most 256"):
            await operator.requeue([ended], idempotency_key="k" * 257)
        await operator.requeue([ended])
    requeued = [one async for one in admin.access.audit(action="RequeueWorkloads")]
    assert [(one.subjects, one.outcome) for one in requeued] == [((ended,), "done"), ((ended,), "INVALID_ARGUMENT")]
    assert (requeued[0].before or {})[ended]["state"] == "CANCELLED"


async def _broken_off(guarded: GuardedService, admin: AsyncClient) -> None:
    """Somebody holds what the call waits for, and its caller has no more time: it is not done, and not recorded as done."""
    workload = guarded.waiting[OWN]
    async with (
        guarded.client(guarded.tokens["operator"]) as operator,
        await psycopg.AsyncConnection.connect(guarded.service.database_url) as holding,
    ):
        await holding.execute("SELECT FROM workloads WHERE workload = %s FOR UPDATE", (workload,))
        await holding.execute("SELECT FROM queue_entries WHERE workload = %s FOR UPDATE", (workload,))
        cancelling = asyncio.create_task(operator.cancel(workload))
        waiting: tuple[bool, ...] | None = (False,)
        while waiting == (False,):
            found = await guarded.database.run(
                lambda connection: connection.execute("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)")
            )
            waiting = await found.fetchone()
        cancelling.cancel()
        await asyncio.gather(cancelling, return_exceptions=True)
        records: list[AuditRecord] = []
        while not records:
            records = [one async for one in admin.access.audit(actor="operator") if one.subjects == (workload,)]
        assert [(one.action, one.outcome) for one in records] == [("CancelWorkload", "CANCELLED")]
        assert "look whether it was done" in records[0].reason
    assert (await admin.get(workload)).ended_s is None


async def _sessions(guarded: GuardedService, admin: AsyncClient) -> None:
    """A shell in the task of a tenant is known of from its beginning; there is none here, for nothing has a process."""
    request = OpenSessionRequest()
    request.opening.workload = guarded.running[FOREIGN]
    request.opening.command.arguments.extend(["psql", "postgresql://me:s3cret@db/x"])
    async with guarded.channel("cluster") as channel:
        call = ClusterManagerStub(channel).OpenSession(
            iter([request]), metadata=(("authorization", f"Bearer {guarded.tokens['operator']}"),)
        )
        with pytest.raises(grpc.aio.AioRpcError):
            async for _ in call:
                pass
    refused, begun = [one async for one in admin.access.audit(action="OpenSession")]
    assert [one.actor for one in (refused, begun)] == ["operator", "operator"]
    assert (begun.outcome, begun.subjects) == ("begun", (guarded.running[FOREIGN],))
    assert "psql" in str(begun.after)
    assert "s3cret" not in str(begun.after)
    assert refused.outcome in {"NOT_FOUND", "FAILED_PRECONDITION"}


async def _secrets(guarded: GuardedService, admin: AsyncClient) -> None:
    """Whoever revokes a leaked token by the whole of it does not write it down for good."""
    _, shown = await guarded.make_token("read-only")
    with pytest.raises(InvalidArgumentError, match="is a whole token, with its secret; name its id"):
        await admin.access.revoke_token(shown)
    revoking = [one async for one in admin.access.audit(action="RevokeToken", limit=100)]
    assert revoking[0].outcome == "INVALID_ARGUMENT"
    assert shown.rpartition("_")[2] not in repr(revoking)


def _commands(guarded: GuardedService, home: Path) -> None:
    """In a thread: commands block."""
    admin = CliRunner(env={"TOPMAST_ADDRESS": guarded.service.address, "TOPMAST_TOKEN": guarded.admin_token, **_WIDE})
    asked = ["token", "create", "--role", "read-only", "--name", "eve", "--expires", "1d"]
    made = admin.invoke(app, asked)
    secret = made.stdout.strip()
    assert made.exit_code == 0, made.output
    assert parse_token(secret) is not None
    (home / "eve.token").write_text(secret)
    eve = CliRunner(
        env={"TOPMAST_ADDRESS": guarded.service.address, "TOPMAST_TOKEN_FILE": str(home / "eve.token"), **_WIDE}
    )
    assert eve.invoke(app, ["whoami"]).stdout.startswith("eve: read-only (by token ")
    refused = eve.invoke(app, ["token", "list"])
    assert (refused.exit_code, "eve has role read-only, and ListTokens is for admin" in refused.output) == (4, True)
    listed = admin.invoke(app, ["token", "list"]).stdout
    assert "eve" in listed
    assert secret not in listed
    wrong = admin.invoke(app, ["token", "create", "--role", "root", "--name", "eve"])
    assert (wrong.exit_code, "'root' does not exist; it must be one of admin, operator" in wrong.output) == (2, True)
    records = [json.loads(line) for line in admin.invoke(app, ["audit", "--json", "--since", "1h"]).stdout.splitlines()]
    assert (records[0]["actor"], records[0]["action"], records[0]["outcome"]) == (
        "eve",
        "ListTokens",
        "PERMISSION_DENIED",
    )
    assert "ListTokens" in admin.invoke(app, ["audit", "--actor", "eve"]).stdout
    # Straight from the database, as for the tiers of a new service.
    into = [*asked[:3], "tier", "--name", "tiers", "--file", str(home / "new" / "tier.token")]
    into += ["--database-url", guarded.service.database_url]
    first = subprocess.run([*TOPMAST, *into], capture_output=True, text=True, check=True)
    assert (first.stdout, first.stderr.endswith("has a new token for tiers (tier)\n")) == ("", True)
    assert first.stderr.count("\n") == 1
    assert "has a valid token already" in admin.invoke(app, into).output


@pytest.mark.live
def test_tokens_tenants_and_the_audit_log(database_url: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with (
            guarded_service(database_url, tmp_path) as guarded,
            guarded.client(guarded.admin_token) as admin,
            asyncio.timeout(_PATIENCE_REAL_S),
        ):
            await _tokens(guarded, admin)
            await _isolation(guarded)
            await _nobody(guarded)
            await _audit(guarded, admin)
            await _requeued(guarded, admin)
            await _broken_off(guarded, admin)
            await _sessions(guarded, admin)
            await _secrets(guarded, admin)
            await asyncio.to_thread(_commands, guarded, tmp_path)

    asyncio.run(run())
