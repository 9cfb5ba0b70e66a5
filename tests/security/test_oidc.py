"""Tokens of an identity provider, signed with real keys: what is taken, and every way in which one is refused."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ValidationError

from services.grpc_errors import CallRefused
from services.security.oidc import OidcTokens
from services.security.oidc_settings import OidcSettings
from services.security.principal import Principal, PrincipalKind
from services.security.roles import Role

_ISSUER, _AUDIENCE = "https://id.example.org", "topmast"
_ROLES = {"ml-admins": "admin", "ml-users": "tenant", "auditors": "read-only"}


class Issuer:
    """An identity provider whose keys are in a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}

    def new_key(self, name: str) -> None:
        """The only one from now on."""
        self._keys[name] = ec.generate_private_key(ec.SECP256R1())
        self.publish(name)

    def publish(self, *names: str) -> None:
        keys = [json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._keys[name].public_key())) for name in names]
        self.file.write_text(
            json.dumps({"keys": [{**key, "kid": name} for key, name in zip(keys, names, strict=True)]})
        )

    def token(self, name: str, **claims: Any) -> str:
        said: Mapping[str, Any] = {
            "iss": _ISSUER,
            "aud": _AUDIENCE,
            "sub": "alice",
            "exp": time.time() + 600.0,
            "groups": ["ml-users", "others"],
            "tenants": ["acme"],
            **claims,
        }
        kept = {key: value for key, value in said.items() if value is not None}
        return jwt.encode(kept, self._keys[name], algorithm="ES256", headers={"kid": name})


def _settings(file: Path, **more: Any) -> OidcSettings:
    return OidcSettings.model_validate(
        {"issuer": _ISSUER, "audience": _AUDIENCE, "jwks_file": str(file), "roles": _ROLES, **more}
    )


def _asked(tokens: OidcTokens, presented: str) -> Principal | None:
    return asyncio.run(tokens.principal(presented))


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    made = Issuer(tmp_path / "jwks.json")
    made.new_key("first")
    return made


@pytest.mark.parametrize(
    ("claims", "role", "tenants"),
    [
        ({}, Role.TENANT, frozenset({"acme"})),
        ({"tenants": "acme globex"}, Role.TENANT, frozenset({"acme", "globex"})),
        ({"tenants": None}, Role.TENANT, frozenset()),
        ({"groups": "ml-admins ml-users"}, Role.ADMIN, None),
        ({"groups": ["auditors"]}, Role.READ_ONLY, frozenset({"acme"})),
        ({"groups": ["auditors"], "tenants": None}, Role.READ_ONLY, None),
        # A claim that names nobody, or that nobody understands, does not open what all have.
        ({"groups": ["auditors"], "tenants": []}, Role.READ_ONLY, frozenset()),
        ({"groups": ["auditors"], "tenants": " "}, Role.READ_ONLY, frozenset()),
        ({"groups": ["auditors"], "tenants": {"acme": True}}, Role.READ_ONLY, frozenset()),
        ({"groups": ["auditors"], "tenants": [1]}, Role.READ_ONLY, frozenset()),
    ],
)
def test_claims_become_role_and_tenants(
    issuer: Issuer, claims: dict[str, Any], role: Role, tenants: frozenset[str] | None
) -> None:
    principal = _asked(OidcTokens(_settings(issuer.file)), issuer.token("first", **claims))
    assert principal is not None
    assert (principal.name, principal.role, principal.tenants) == ("alice", role, tenants)
    assert (principal.kind, principal.credential) == (PrincipalKind.OIDC, f"{_ISSUER}#alice")


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"exp": 1.0}, "has expired; get a new one from the identity provider"),
        ({"exp": None}, "has no claim exp"),
        ({"sub": None}, "has no claim sub"),
        (
            {"aud": "wiki"},
            "is for another service, or of another issuer than https://id.example.org; get one for topmast",
        ),
        ({"iss": "https://elsewhere"}, "is for another service, or of another issuer"),
        ({"nbf": 4e9}, "is not valid yet"),
        ({"exp": 10**400}, "the claim exp of this token is no moment"),
        ({"exp": float("inf")}, "is not signed by the identity provider, or it was changed"),
        ({"sub": ""}, "the claim sub of this token is no name that can be shown"),
        ({"sub": "alice\n\x1b[2J"}, "the claim sub of this token is no name that can be shown"),
    ],
)
def test_never_is_a_token_taken_that_is_not_for_us_and_for_now(
    issuer: Issuer, claims: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CallRefused, match=sentence) as refused:
        _asked(OidcTokens(_settings(issuer.file)), issuer.token("first", **claims))
    assert refused.value.code is grpc.StatusCode.UNAUTHENTICATED


def test_never_is_a_token_taken_that_the_issuer_has_not_signed(issuer: Issuer, tmp_path: Path) -> None:
    tokens = OidcTokens(_settings(issuer.file))
    good = issuer.token("first")
    claims = jwt.decode(good, options={"verify_signature": False})
    head, body, signature = good.split(".")
    # What everybody can read, as a secret that is shared.
    public = json.loads(issuer.file.read_text())["keys"][0]["x"]
    other_kind = rsa.generate_private_key(65537, 2048)
    impostor = Issuer(tmp_path / "others.json")
    impostor.new_key("first")
    for forged, sentence in (
        (jwt.encode(claims, "", algorithm="none"), "is not signed by one of RS256, ES256"),
        (
            jwt.encode(claims, public, algorithm="HS256", headers={"kid": "first"}),
            "is not signed by one of RS256, ES256",
        ),
        (impostor.token("first", groups="ml-admins"), "is not signed by the identity provider, or it was changed"),
        (f"{head}.{body}.{signature[:-4]}AAAA", "is not signed by the identity provider, or it was changed"),
        (f"{head}.{body}.", "is not signed by the identity provider, or it was changed"),
        # The key of that name is for another algorithm.
        (
            jwt.encode(claims, other_kind, algorithm="RS256", headers={"kid": "first"}),
            "is not signed by the identity provider, or it was changed",
        ),
        ("a.b.c", "cannot be read as one of the identity provider"),
    ):
        with pytest.raises(CallRefused, match=sentence) as refused:
            _asked(tokens, forged)
        assert refused.value.code is grpc.StatusCode.UNAUTHENTICATED
    assert _asked(tokens, "topmast_without_dots") is None
    assert _asked(tokens, good) is not None


def test_who_has_no_role_is_refused_by_name(issuer: Issuer) -> None:
    with pytest.raises(CallRefused, match="the claim groups of alice means no role here") as refused:
        _asked(OidcTokens(_settings(issuer.file)), issuer.token("first", groups={"ml-admins": True}))
    assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED


def test_new_keys_are_read_and_withdrawn_ones_go(issuer: Issuer) -> None:
    now = [0.0]
    tokens = OidcTokens(_settings(issuer.file), seconds=lambda: now[0])
    first = issuer.token("first")
    assert _asked(tokens, first) is not None
    issuer.new_key("second")
    second = issuer.token("second")
    # Names that nobody knows do not have the keys read each time.
    with pytest.raises(CallRefused, match="with a key that the identity provider does not have"):
        _asked(tokens, second)
    now[0] += 11.0
    assert _asked(tokens, second) is not None
    with pytest.raises(CallRefused, match="with a key that the identity provider does not have"):
        _asked(tokens, first)
    # While the keys cannot be read, those that were known stay.
    issuer.file.write_text("{")
    now[0] += 4_000.0
    assert _asked(tokens, second) is not None


def test_without_any_keys_nobody_is_judged(tmp_path: Path, issuer: Issuer) -> None:
    with pytest.raises(CallRefused, match="keys of the identity provider cannot be read") as refused:
        _asked(OidcTokens(_settings(tmp_path / "nowhere.json")), issuer.token("first"))
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE


@asynccontextmanager
async def _served(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[str]:
    """Where keys are served; `answer` writes what follows upon the head of the answer."""

    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        with closing(writer), suppress(ConnectionError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
            await answer(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/keys"
    finally:
        server.close()
        tasks = [task for task in serving if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        # Closed connections end with the next turns of the loop.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


def test_keys_may_come_in_pieces(issuer: Issuer) -> None:
    document = issuer.file.read_bytes()

    async def in_pieces(writer: asyncio.StreamWriter) -> None:
        for part in (document[:40], document[40:]):
            writer.write(part)
            await writer.drain()
            # The other side reads what there is.
            for _ in range(20):
                await asyncio.sleep(0)

    async def scenario() -> None:
        async with _served(in_pieces) as url:
            tokens = OidcTokens(_settings(issuer.file, jwks_file=None, jwks_url=url))
            principal = await tokens.principal(issuer.token("first"))
        assert principal is not None
        assert principal.name == "alice"

    asyncio.run(scenario())


def test_keys_without_end_are_no_keys(issuer: Issuer) -> None:
    async def endless(writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b" " * 2**16)
            await writer.drain()

    async def scenario() -> None:
        async with _served(endless) as url:
            tokens = OidcTokens(_settings(issuer.file, jwks_file=None, jwks_url=url))
            with pytest.raises(CallRefused, match="the keys of the identity provider cannot be read"):
                await tokens.principal(issuer.token("first"))

    asyncio.run(scenario())


def test_who_has_a_known_key_waits_for_nobody_who_invents_one(issuer: Issuer) -> None:
    document = issuer.file.read_bytes()

    async def scenario() -> None:
        asked = asyncio.Queue[None]()
        now_s = 0.0

        async def once_and_then_never(writer: asyncio.StreamWriter) -> None:
            asked.put_nowait(None)
            writer.write(document)
            if now_s > 0.0:
                await asyncio.Event().wait()

        async with _served(once_and_then_never) as url:
            settings = _settings(issuer.file, jwks_file=None, jwks_url=url)
            tokens = OidcTokens(settings, seconds=lambda: now_s)
            first = issuer.token("first")
            assert await tokens.principal(first) is not None
            await asked.get()
            now_s = 100.0
            issuer.new_key("invented")
            stranger = asyncio.create_task(tokens.principal(issuer.token("invented")))
            await asked.get()
            assert await tokens.principal(first) is not None
            assert not stranger.done(), "the issuer has not answered"
            stranger.cancel()
            await asyncio.wait([stranger])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"algorithms": ["HS256"]}, "algorithms"),
        ({"algorithms": ["none"]}, "algorithms"),
        ({"algorithms": []}, "algorithms"),
        ({"roles": {"x": "root"}}, "roles"),
        ({"roles": {"x": "tier"}}, "cannot make anybody a tier"),
        ({"jwks_url": "https://id.example.org/keys"}, "not both"),
        ({"jwks_file": None}, "needs jwks_file or jwks_url"),
        ({"jwks_file": None, "jwks_url": "http://id.example.org/keys"}, "is not https"),
    ],
)
def test_settings_that_would_take_what_anybody_can_make_are_refused(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        _settings(Path("jwks.json"), **changed)
