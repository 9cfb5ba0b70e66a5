"""Checks tokens of an OpenID Connect provider (JWT): signature, issuer, audience, times; claims become role and tenants."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import structlog

from services.grpc_errors import PermissionDenied, Unauthenticated, Unavailable
from services.security.oidc_settings import OidcSettings
from services.security.principal import Principal, PrincipalKind

_READ_AGAIN_REAL_S = 10.0
"""A key that is not known has the keys read again, so often at most: whoever invents names of keys causes no flood."""

_KEPT_REAL_S = 3_600.0
"""Keys are read again in any case, so that one that the issuer has withdrawn goes."""

_TIMEOUT_REAL_S = 5.0
_LARGEST_KEYS_BYTES = 2**20
_LONGEST_NAME = 128
_PARTS = 3

_log = structlog.get_logger(__name__)


class OidcTokens:
    """Says whom a token of the issuer stands for."""

    def __init__(self, settings: OidcSettings, *, seconds: Callable[[], float] = time.monotonic) -> None:
        """`seconds` never go back."""
        self._settings = settings
        self._seconds = seconds
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._read_s: float | None = None
        self._reading = asyncio.Lock()

    async def principal(self, presented: str) -> Principal | None:
        """None: it has not the form of such a token. Raises Unauthenticated, PermissionDenied for claims that mean no role, and
        Unavailable while there are no keys."""
        if presented.count(".") != _PARTS - 1:
            return None
        try:
            header = jwt.get_unverified_header(presented)
        except (jwt.InvalidTokenError, ValueError) as error:
            raise Unauthenticated("this token cannot be read as one of the identity provider; get a new one") from error
        # Before a key is looked for: `none`, and whatever is signed with a shared secret.
        if header.get("alg") not in self._settings.algorithms:
            allowed = ", ".join(self._settings.algorithms)
            raise Unauthenticated(f"this token is not signed by one of {allowed} (security.oidc.algorithms)")
        claims = self._claims(presented, await self._key(str(header.get("kid", ""))))
        return self._principal(claims)

    def _claims(self, presented: str, key: jwt.PyJWK) -> Mapping[str, Any]:
        settings = self._settings
        try:
            return jwt.decode(
                presented,
                key.key,
                algorithms=list(settings.algorithms),
                audience=settings.audience,
                issuer=settings.issuer,
                leeway=settings.leeway_s,
                options={"require": ["exp", "iss", "aud", settings.name_claim]},
            )
        except jwt.ExpiredSignatureError as error:
            raise Unauthenticated("this token has expired; get a new one from the identity provider") from error
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
            raise Unauthenticated(
                f"this token is for another service, or of another issuer than {settings.issuer}; get one for"
                f" {settings.audience}"
            ) from error
        except jwt.MissingRequiredClaimError as error:
            raise Unauthenticated(f"this token has no claim {error.claim}; get one that has it") from error
        except jwt.ImmatureSignatureError as error:
            raise Unauthenticated("this token is not valid yet; look at the clocks, or wait") from error
        except (jwt.PyJWTError, TypeError, ValueError, ArithmeticError) as error:
            # A TypeError: its header names a key that is for another algorithm.
            raise Unauthenticated(
                "this token is not signed by the identity provider, or it was changed; get a new one"
            ) from error

    def _principal(self, claims: Mapping[str, Any]) -> Principal:
        settings = self._settings
        subject = str(claims[settings.name_claim])[:_LONGEST_NAME]
        if not subject or not f"{subject}{claims.get('sub', '')}".isprintable():
            # It is shown to people: in tables of a terminal, and in the audit.
            raise Unauthenticated(
                f"the claim {settings.name_claim} of this token is no name that can be shown; change it"
            )
        role = settings.role_of(_words(claims.get(settings.role_claim)))
        if role is None:
            raise PermissionDenied(
                f"the claim {settings.role_claim} of {subject} means no role here; ask an admin to add it to"
                " security.oidc.roles"
            )
        said = settings.tenants_claim in claims
        tenants = settings.tenants_of(role, _words(claims[settings.tenants_claim]) if said else None)
        credential = f"{settings.issuer}#{claims.get('sub', subject)}"[: 2 * _LONGEST_NAME]
        return Principal(subject, role, tenants, PrincipalKind.OIDC, credential, _end(claims["exp"]))

    # ------------------------------------------------------------ keys

    async def _key(self, name: str) -> jwt.PyJWK:
        """Of that name; of an issuer with one key that has no name, that. Reads the keys again where it is not among them.

        Who has a key that is known waits for nobody who invents names of others, nor for an issuer that does not answer.
        """
        key = self._known(name)
        if key is not None and self._read_s is not None and self._seconds() - self._read_s < _KEPT_REAL_S:
            return key
        async with self._reading:
            now_s = self._seconds()
            key = self._known(name)
            stale_s = _KEPT_REAL_S if key is not None else _READ_AGAIN_REAL_S
            if self._read_s is None or now_s - self._read_s >= stale_s:
                await self._read(now_s)
                key = self._known(name)
        if key is None:
            if not self._keys:
                raise Unavailable("the keys of the identity provider cannot be read at the moment; try again")
            raise Unauthenticated(
                "this token is signed with a key that the identity provider does not have (any more); get a new one"
            )
        return key

    def _known(self, name: str) -> jwt.PyJWK | None:
        if not name and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(name)

    async def _read(self, now_s: float) -> None:
        """Keeps those that there were where they cannot be read."""
        self._read_s = now_s
        try:
            document = json.loads(await self._document())
            keys = jwt.PyJWKSet.from_dict(document).keys
        except (
            OSError,
            ValueError,
            TypeError,
            AttributeError,
            aiohttp.ClientError,
            TimeoutError,
            jwt.PyJWTError,
        ) as error:
            _log.warning("the keys of the identity provider cannot be read", error=str(error))
            return
        self._keys = {str(key.key_id or ""): key for key in keys if key.key_type != "oct"}

    async def _document(self) -> bytes:
        settings = self._settings
        if settings.jwks_file is not None:
            return await asyncio.to_thread(Path(settings.jwks_file).read_bytes)
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_REAL_S)) as session,
            session.get(str(settings.jwks_url), allow_redirects=False) as response,
        ):
            response.raise_for_status()
            document = bytearray()
            async for part in response.content.iter_any():
                document += part
                if len(document) > _LARGEST_KEYS_BYTES:
                    raise ValueError(f"there are more than {_LARGEST_KEYS_BYTES} bytes of them")
            return bytes(document)


def _end(claim: Any) -> float:
    """A moment so late that no number is for it is as good as none."""
    try:
        return float(claim)
    except OverflowError as error:
        raise Unauthenticated("the claim exp of this token is no moment; get one that ends") from error


def _words(claim: object) -> list[str]:
    """A claim is a word or a list of words; anything else means nothing."""
    if isinstance(claim, str):
        return claim.split()
    return [word for word in claim if isinstance(word, str)] if isinstance(claim, list) else []
