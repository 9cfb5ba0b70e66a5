"""Random secrets, what is stored of them, and how one is compared with what is stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

SECRET_BYTES: Final = 32


def new_secret() -> str:
    """256 bits from the system's generator, as text: nobody guesses it, however often it is tried."""
    return secrets.token_urlsafe(SECRET_BYTES)


def hash_of(secret: str) -> str:
    """What is stored of a secret: whoever reads that cannot use it. One round suffices, for it is random and long."""
    return hashlib.sha256(secret.encode()).hexdigest()


def matches(secret: str, stored_hash: str) -> bool:
    """Whether this is the secret; takes equally long wherever the two differ."""
    return hmac.compare_digest(hash_of(secret), stored_hash)
