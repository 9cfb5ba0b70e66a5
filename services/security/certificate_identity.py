"""Who a certificate speaks for: a URI in its subject alternative names, in words and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from cryptography import x509

SCHEME = "topmast"
TIER_ROLE = "tier"


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """Whom a certificate names. A tier has the role `tier` and no name; a client a name, a role, and tenants if it is held to some."""

    role: str
    name: str = ""
    tenants: tuple[str, ...] = ()

    def uri(self) -> str:
        """topmast://tier, or topmast://client/NAME?role=ROLE&tenant=TENANT."""
        if self.role == TIER_ROLE:
            return f"{SCHEME}://{TIER_ROLE}"
        pairs = [("role", self.role), *(("tenant", tenant) for tenant in self.tenants)]
        return f"{SCHEME}://client/{quote(self.name, safe='')}?{urlencode(pairs)}"


TIER = CertificateIdentity(TIER_ROLE)


def identity_from_uri(uri: str) -> CertificateIdentity | None:
    """The identity that such a URI says; None when it says none."""
    try:
        parts = urlsplit(uri)
        asked = parse_qs(parts.query, keep_blank_values=True, strict_parsing=True) if parts.query else {}
    except ValueError:
        return None
    if parts.scheme != SCHEME:
        return None
    if parts.netloc == TIER_ROLE:
        return TIER if not (parts.path or parts.query) else None
    name, roles = unquote(parts.path.removeprefix("/")), asked.get("role", [])
    # A client's certificate cannot make a tier of it, whatever it says.
    if parts.netloc != "client" or not name or len(roles) != 1 or roles[0] == TIER_ROLE:
        return None
    return CertificateIdentity(roles[0], name, tuple(asked.get("tenant", ())))


def identity_of(certificate: x509.Certificate) -> CertificateIdentity | None:
    """The one identity that the certificate names; None when it names none, or several."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    return _only(names.get_values_for_type(x509.UniformResourceIdentifier))


def peer_identity(auth_context: Mapping[str, Iterable[bytes]]) -> CertificateIdentity | None:
    """Whom the verified certificate of a gRPC peer names (`ServicerContext.auth_context()`); None for a peer without one.

    gRPC lists a certificate's names only after it has verified the certificate.
    """
    names = auth_context.get("x509_subject_alternative_name", ())
    return _only([name.decode(errors="replace") for name in names])


def peer_ends_real_s(auth_context: Mapping[str, Iterable[bytes]]) -> float | None:
    """When the certificate of a gRPC peer ends, which was verified when the connection was made; None for a peer without one."""
    found = next(iter(auth_context.get("x509_pem_cert", ())), None)
    return None if found is None else x509.load_pem_x509_certificate(found).not_valid_after_utc.timestamp()


def _only(uris: Iterable[str]) -> CertificateIdentity | None:
    found = [uri for uri in uris if uri.startswith(f"{SCHEME}:")]
    return identity_from_uri(found[0]) if len(found) == 1 else None
