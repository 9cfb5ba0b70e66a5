"""Who makes the call that is being answered."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum

from services.security.roles import Role


class PrincipalKind(StrEnum):
    """By what a caller is known."""

    TOKEN = "token"  # noqa: S105 -- a word, no secret
    OIDC = "oidc"
    CERTIFICATE = "certificate"
    UNASKED = "unasked"
    """Nobody is asked: authentication is off."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller; `tenants` None: all."""

    name: str
    role: Role
    tenants: frozenset[str] | None
    kind: PrincipalKind
    credential: str = ""
    """Which token, or which subject of which issuer: in the audit log it tells callers of one name apart."""
    expires_real_s: float | None = None
    """None: never."""

    def owns(self, tenant: str) -> bool:
        """Whether what belongs to that tenant may be seen."""
        return self.tenants is None or tenant in self.tenants


UNASKED = Principal("anybody", Role.ADMIN, None, PrincipalKind.UNASKED)
"""Whoever calls a service that asks nobody."""

_PRESENT: ContextVar[Principal] = ContextVar("principal")


def present_principal() -> Principal:
    """Of the call that this task answers. Raises LookupError outside of calls: nothing is allowed by oversight."""
    return _PRESENT.get()


def set_principal(principal: Principal) -> None:
    """For the task of a call, which ends with it."""
    _PRESENT.set(principal)
