"""Who receives a notification can check that it comes from this service, and when it was sent."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

SIGNATURE_HEADER = "Topmast-Signature"
DELIVERY_HEADER = "Topmast-Delivery"

_LEAST_CHARACTERS = 16


class SecretUnusable(Exception):
    """The file with the secret cannot be used; the message says why, never what is in it."""


def signature(secret: bytes, body: bytes, now_real_s: float) -> str:
    """The header's value: `t=` whole seconds since the epoch, `v1=` HMAC-SHA256 over them, a dot and the body."""
    time = str(int(now_real_s))
    return f"t={time},v1={hmac.new(secret, time.encode() + b'.' + body, hashlib.sha256).hexdigest()}"


def read_secret(path: Path) -> bytes:
    """The file's content without white space around it; raises SecretUnusable."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise SecretUnusable(f"cannot be read: {error.strerror}: {path}") from error
    if len(secret) < _LEAST_CHARACTERS:
        raise SecretUnusable(f"holds {len(secret)} characters; a secret has at least {_LEAST_CHARACTERS}: {path}")
    return secret


def secret_at(path: Path) -> bytes:
    """The same; where there is no such file it is made, for its owner alone to read. Raises SecretUnusable."""
    fresh = secrets.token_hex(32).encode()
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(fresh + b"\n")
            try:
                # Whoever comes second finds the first one's.
                os.link(beside, path)
            except FileExistsError:
                pass
            finally:
                beside.unlink()
    except OSError as error:
        raise SecretUnusable(f"cannot be made: {error.strerror}: {path}") from error
    return read_secret(path)
