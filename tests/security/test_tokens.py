"""Bearer tokens: their form, what is stored of them, and every way in which one is refused."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import psycopg
import pytest

from services.database import audit_store, token_store
from services.database.audit_store import AuditEntry, AuditFilter
from services.database.engine import Database
from services.grpc_errors import CallRefused
from services.security import authentication
from services.security.authentication import TokenAuthentication
from services.security.authorization import presented_token
from services.security.home_tokens import admin_token_file, keep_home_tokens, tier_token_file
from services.security.outgoing_token import TokenFile
from services.security.principal import Principal
from services.security.roles import Role
from services.security.settings import AuthenticationNeeded, check_loopback
from services.security.tokens import new_token, parse_token, scope_problem

_GUESS = "topmast_0123456789abcdef_" + "0" * 64


def test_a_token_is_shown_once_and_stored_as_a_hash() -> None:
    shown, token = new_token()
    prefix, public, secret = shown.split("_")
    assert (prefix, public, len(bytes.fromhex(secret))) == ("topmast", token.token, 32)
    assert token.secret_hash == hashlib.sha256(secret.encode()).digest()
    assert secret not in repr(token)
    assert parse_token(shown) == token
    assert new_token()[0] != shown


@pytest.mark.parametrize(
    "text", ["", "topmast", _GUESS[:-1], _GUESS + "0", _GUESS.upper(), f" {_GUESS}", "ä" * 80, "a.b.c"]
)
def test_what_has_not_the_form_of_a_token_is_none(text: str) -> None:
    assert parse_token(text) is None


@pytest.mark.parametrize(
    ("metadata", "token"),
    [
        ((), None),
        ((("traceparent", "x"),), None),
        ((("authorization", f"Bearer {_GUESS}"),), _GUESS),
        ((("authorization", f"bearer  {_GUESS} "),), _GUESS),
        ((("authorization", "Basic abc"),), "?"),
        ((("authorization", "Bearer "),), "?"),
        ((("authorization", b"\xff"),), "?"),
    ],
)
def test_a_token_comes_as_a_bearer(metadata: object, token: str | None) -> None:
    assert presented_token(metadata) == token


@pytest.mark.parametrize(
    ("role", "tenants", "sentence"),
    [
        (Role.TENANT, (), "are missing: role tenant acts for tenants; name at least one"),
        (Role.ADMIN, ("acme",), "cannot be named with role admin, which is for the whole service; leave them out"),
        (Role.TIER, ("acme",), "cannot be named with role tier, which is for the whole service; leave them out"),
        (Role.READ_ONLY, (), None),
        (Role.READ_ONLY, ("acme",), None),
        (Role.TENANT, ("acme",), None),
    ],
)
def test_tenants_fit_to_the_role(role: Role, tenants: tuple[str, ...], sentence: str | None) -> None:
    problem = scope_problem(role, tenants)
    assert (problem and problem[1]) == sentence


@pytest.mark.parametrize("listen", ["0.0.0.0:7460", "global-1:7460", "10.0.0.7:0", "[::]:1"])
def test_never_is_nobody_asked_where_others_can_call(listen: str) -> None:
    with pytest.raises(AuthenticationNeeded, match="can be reached from other machines: listen on"):
        check_loopback(listen)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:7460", "[::1]:7460", "127.9.9.9:1"])
def test_on_loopback_authentication_can_be_off(listen: str) -> None:
    check_loopback(listen)


def _run(database_url: str, scenario: Callable[[Database], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Database(database_url) as database:
            await scenario(database)

    asyncio.run(run())


async def _made(database: Database, expires_in_s: float | None = None) -> str:
    shown, token = new_token()
    at = None if expires_in_s is None else datetime.now(UTC) + timedelta(seconds=expires_in_s)
    await database.run(
        lambda connection: token_store.insert(
            connection, token.token, token.secret_hash, "alice", "tenant", ["acme"], "the test", at
        )
    )
    return shown


def test_each_bad_token_is_refused_in_one_sentence(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "KEPT_REAL_S", 0.0)

    async def scenario(database: Database) -> None:
        asked = TokenAuthentication(database)

        async def refused(token: str | None) -> str:
            with pytest.raises(CallRefused) as refusal:
                await asked.principal(token)
            assert refusal.value.code is grpc.StatusCode.UNAUTHENTICATED
            return refusal.value.sentence

        good = await _made(database, 3_600.0)
        principal = await asked.principal(good)
        assert (principal.name, principal.role, principal.tenants) == ("alice", Role.TENANT, frozenset({"acme"}))
        assert "no token came with this call; pass one in TOPMAST_TOKEN" in await refused(None)
        assert "must read topmast_<id>_<secret>, whole" in await refused("topmast_12")
        assert "must read topmast_<id>_<secret>, whole" in await refused("a.b.c")
        # Whoever guesses does not learn which ids there are.
        guessed = f"{good[:25]}{'0' * 64}"
        assert parse_token(guessed) is not None
        assert await refused(guessed) == await refused(_GUESS)
        assert "is not known here; it may be another service's" in await refused(_GUESS)
        assert "token alice has expired" in await refused(await _made(database, -1.0))
        found = parse_token(good)
        assert found is not None
        await database.run(lambda connection: token_store.revoke(connection, found.token, "bob"))
        assert "token alice was revoked" in await refused(good)
        again = await database.run(lambda connection: token_store.revoke(connection, found.token, "carol"))
        assert again is not None
        assert (again.revoked_by, again.used_real_s is not None) == ("bob", True)

    _run(database_url, scenario)


def test_what_is_known_of_a_token_is_kept_for_a_moment_only(database_url: str) -> None:
    """So revocation takes effect within the stated time, and calls do not each ask the database."""
    now = [1_000.0]
    assert authentication.KEPT_REAL_S * 2 <= 5.0

    async def scenario(database: Database) -> None:
        asked, good = TokenAuthentication(database, seconds=lambda: now[0]), await _made(database)
        await asked.principal(good)
        found = parse_token(good)
        assert found is not None
        await database.run(lambda connection: token_store.revoke(connection, found.token, "bob"))
        assert (await asked.principal(good)).name == "alice"
        now[0] += authentication.KEPT_REAL_S
        with pytest.raises(CallRefused, match="was revoked"):
            await asked.principal(good)

    _run(database_url, scenario)


def test_a_flood_of_guesses_asks_the_database_for_a_few_at_a_time(database_url: str) -> None:
    """And those whose token is known go on meanwhile, also when it would have to be looked up again."""
    now = [1_000.0]

    async def scenario(database: Database) -> None:
        asked, good = TokenAuthentication(database, seconds=lambda: now[0]), await _made(database)
        await asked.principal(good)
        now[0] += authentication.KEPT_REAL_S
        guesses = [asyncio.create_task(asked.principal(new_token()[0])) for _ in range(500)]
        await asyncio.sleep(0)
        assert (await asked.principal(good)).name == "alice"
        outcomes = await asyncio.gather(*guesses, return_exceptions=True)
        codes = [outcome.code for outcome in outcomes if isinstance(outcome, CallRefused)]
        assert codes.count(grpc.StatusCode.UNAUTHENTICATED) == authentication.MOST_LOOKED_UP_AT_ONCE
        assert codes.count(grpc.StatusCode.UNAVAILABLE) == 500 - authentication.MOST_LOOKED_UP_AT_ONCE
        # Later ones are looked up again.
        with pytest.raises(CallRefused, match="is not known here"):
            await asked.principal(new_token()[0])

    _run(database_url, scenario)


def test_never_do_guesses_keep_a_revoked_token_alive_or_push_a_known_one_out(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authentication, "_MOST_KEPT", 4)
    now = [1_000.0]

    async def scenario(database: Database) -> None:
        asked, good = TokenAuthentication(database, seconds=lambda: now[0]), await _made(database)
        await asked.principal(good)
        found = parse_token(good)
        assert found is not None

        async def guess() -> list[asyncio.Task[Principal]]:
            """As many at once as are looked up."""
            many = range(authentication.MOST_LOOKED_UP_AT_ONCE)
            guesses = [asyncio.create_task(asked.principal(new_token()[0])) for _ in many]
            await asyncio.sleep(0)
            return guesses

        await asyncio.gather(*await guess(), return_exceptions=True)
        guesses = await guess()
        assert (await asked.principal(good)).name == "alice"
        await asyncio.gather(*guesses, return_exceptions=True)
        await database.run(lambda connection: token_store.revoke(connection, found.token, "bob"))
        now[0] += authentication.KEPT_REAL_S
        guesses = await guess()
        with pytest.raises(CallRefused, match="was revoked"):
            await asked.principal(good)
        await asyncio.gather(*guesses, return_exceptions=True)

    _run(database_url, scenario)


def test_a_home_gets_tokens_that_only_its_user_reads_and_keeps_them(database_url: str, tmp_path: Path) -> None:
    async def scenario(database: Database) -> None:
        home = tmp_path / "home"
        await database.run(lambda connection: keep_home_tokens(connection, home))
        first = [TokenFile(file(home)).token() for file in (admin_token_file, tier_token_file)]
        for path in (admin_token_file(home), tier_token_file(home)):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await database.run(lambda connection: keep_home_tokens(connection, home))
        assert [TokenFile(file(home)).token() for file in (admin_token_file, tier_token_file)] == first
        # One that is not valid any more is replaced; the other one stays.
        revoked = parse_token(first[0] or "")
        assert revoked is not None
        await database.run(lambda connection: token_store.revoke(connection, revoked.token, "bob"))
        await database.run(lambda connection: keep_home_tokens(connection, home))
        assert TokenFile(admin_token_file(home)).token() != first[0]
        assert TokenFile(tier_token_file(home)).token() == first[1]
        tokens = await database.run(token_store.list_all)
        assert sorted(token.role for token in tokens) == ["admin", "admin", "tier"]
        made = await database.run(
            lambda connection: audit_store.load(connection, AuditFilter(action="CreateToken"), 10)
        )
        assert [record.entry.actor for record in made] == ["topmast up"] * 3

    _run(database_url, scenario)


def test_never_is_an_audit_record_changed_or_deleted(database_url: str) -> None:
    async def scenario(database: Database) -> None:
        entry = AuditEntry("alice\0", "admin", "token", "t", "Drain", ["m\0"], after={"reason": "\0"})
        await database.run(lambda connection: audit_store.append(connection, entry))
        (record,) = await database.run(lambda connection: audit_store.load(connection, AuditFilter(), 10))
        assert (record.entry.actor, record.entry.subjects, record.entry.outcome) == ("alice\ufffd", ["m\ufffd"], "done")

    _run(database_url, scenario)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in (
            "UPDATE audit_log SET actor = 'bob'",
            "DELETE FROM audit_log",
            "TRUNCATE audit_log",
            "DELETE FROM audit_log WHERE false",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="the audit log can only be added to"):
                connection.execute(statement)
        row = connection.execute("SELECT count(*) FROM audit_log").fetchone()
    assert row == (1,)
