"""Bearer tokens: `topmast_<id>_<secret>`. The id is public; of the secret only a hash is stored.

The secret has 256 random bits, so a plain SHA-256 of it cannot be searched, and no salt is needed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from services.security.roles import MAY_HAVE_TENANTS, NEEDS_TENANTS, Role

_FORM = re.compile(r"topmast_([0-9a-f]{16})_([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """One that was presented, or has just been made. Its `repr` does not tell the secret."""

    token: str
    """Its public id."""
    secret_hash: bytes

    def matches(self, stored_hash: bytes) -> bool:
        """Compares in constant time."""
        return hmac.compare_digest(self.secret_hash, stored_hash)


def new_token() -> tuple[str, BearerToken]:
    """As it is shown, once, and as it is stored."""
    token, secret = secrets.token_hex(8), secrets.token_hex(32)
    return f"topmast_{token}_{secret}", BearerToken(token, _hash_of(secret))


def parse_token(text: str) -> BearerToken | None:
    """None: it has not the form of a token of ours."""
    found = _FORM.fullmatch(text)
    return None if found is None else BearerToken(found[1], _hash_of(found[2]))


def scope_problem(role: Role, tenants: Sequence[str]) -> tuple[str, str] | None:
    """The field that does not fit and why, for a role with these tenants; none: the role is for all."""
    if not tenants and role in NEEDS_TENANTS:
        return "tenants", f"are missing: role {role} acts for tenants; name at least one"
    if tenants and role not in MAY_HAVE_TENANTS:
        return "tenants", f"cannot be named with role {role}, which is for the whole service; leave them out"
    return None


def _hash_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
