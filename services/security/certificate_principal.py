"""Who calls with a certificate and no token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.security.certificate_identity import CertificateIdentity, peer_ends_real_s, peer_identity
from services.security.principal import Principal, PrincipalKind
from services.security.roles import MAY_HAVE_TENANTS, NEEDS_TENANTS, Role


def principal_of_peer(auth_context: Mapping[str, Any]) -> Principal | None:
    """The caller, by what gRPC has verified (`ServicerContext.auth_context()`); None: no certificate says who that is."""
    identity = peer_identity(auth_context)
    if identity is None or problem_of(identity) is not None:
        return None
    role = Role(identity.role)
    tenants = frozenset(identity.tenants) if identity.tenants else None
    name, ends_real_s = identity.name or role.value, peer_ends_real_s(auth_context)
    return Principal(name, role, tenants, PrincipalKind.CERTIFICATE, identity.uri(), ends_real_s)


def problem_of(identity: CertificateIdentity) -> str | None:
    """Why nobody can be that, in a sentence with the option to change; None: somebody can."""
    roles = [role.value for role in Role]
    if identity.role not in roles:
        return f"--role: '{identity.role}' is no role; choose one of {', '.join(sorted(roles))}"
    role = Role(identity.role)
    if "" in identity.tenants:
        # Left out it would mean all of them, for some roles.
        return "--tenant: is empty; name a tenant, or leave the option out"
    if role in NEEDS_TENANTS and not identity.tenants:
        return f"--tenant: role {role} is nothing without tenants; name at least one"
    if role not in MAY_HAVE_TENANTS and identity.tenants:
        return f"--tenant: role {role} is for the whole service; leave --tenant out, or choose another role"
    return None
