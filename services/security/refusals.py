"""How callers are turned away: in one sentence that says what to do."""

from __future__ import annotations

import grpc

from services.grpc_errors import CallRefused, PermissionDenied, Unauthenticated
from services.security.principal import Principal

_HOW = "pass one in TOPMAST_TOKEN, or a file with it in TOPMAST_TOKEN_FILE (topmast token create makes one)"


def no_token() -> Unauthenticated:
    return Unauthenticated(f"no token came with this call; {_HOW}")


def malformed_token() -> Unauthenticated:
    return Unauthenticated(
        "what came in the place of a token is none: it must read topmast_<id>_<secret>, whole, as it was shown when it was"
        f" made; {_HOW}"
    )


def unknown_token() -> Unauthenticated:
    """The same for an id that does not exist and a secret that does not fit: who guesses learns nothing."""
    return Unauthenticated(f"this token is not known here; it may be another service's, so {_HOW}")


def expired(name: str) -> Unauthenticated:
    return Unauthenticated(f"token {name} has expired; {_HOW}")


def certificate_ended(name: str) -> Unauthenticated:
    """The connection was made before that."""
    return Unauthenticated(f"the certificate of {name} has ended; get a new one (topmast certs client makes one)")


def revoked(name: str) -> Unauthenticated:
    return Unauthenticated(f"token {name} was revoked; {_HOW}")


def broken_off() -> CallRefused:
    """For the audit log: nobody is there any more who could be told."""
    return CallRefused(
        grpc.StatusCode.CANCELLED, "the call was broken off before it was answered; look whether it was done"
    )


def not_for_role(principal: Principal, method: str, roles: str) -> PermissionDenied:
    return PermissionDenied(
        f"{principal.name} has role {principal.role}, and {method} is for {roles}; ask an admin for a token of such a role"
    )


def no_rule(method: str) -> PermissionDenied:
    return PermissionDenied(f"nobody may call {method}: no rule says who may")
