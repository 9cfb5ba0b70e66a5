"""Certificates are made and read: a private authority, and what it signs. Nothing here touches files."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from services.security.certificate_identity import CertificateIdentity

_CLOCKS_APART = timedelta(minutes=5)
"""So far behind the clock of another machine may be: a certificate counts from then on."""


@dataclass(frozen=True, slots=True)
class CertifiedKey:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def certificate_pem(self) -> bytes:
        return as_pem(self.certificate)

    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def new_authority(now: float, days: int) -> CertifiedKey:
    """An authority that vouches for `days` days from `now` (seconds since the epoch)."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Two of them are told apart by their names while both are trusted.
    name = _name(f"Topmast authority {x509.random_serial_number():040x}"[:60])
    usage = _key_usage(signs_certificates=True)
    certificate = (
        _builder(name, name, key, now, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    return CertifiedKey(certificate, key)


def vouch(former: CertifiedKey, new: CertifiedKey) -> x509.Certificate:
    """The new authority's key under its name, signed by the former one: who trusts the former one alone trusts what the new one signs."""
    certificate = new.certificate
    return (
        x509.CertificateBuilder()
        .subject_name(certificate.subject)
        .issuer_name(former.certificate.subject)
        .public_key(certificate.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(certificate.not_valid_before_utc)
        .not_valid_after(min(certificate.not_valid_after_utc, former.certificate.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(former.key, hashes.SHA256())
    )


def issue(
    authority: CertifiedKey, identity: CertificateIdentity, hosts: Sequence[str], now: float, days: int
) -> CertifiedKey:
    """A certificate for the identity; with `hosts`, names or addresses, also one of a server that is reached by these.

    It ends no later than the authority's own.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(identity.uri()), *map(_host_name, hosts)]
    certificate = (
        _builder(
            _name(identity.name or identity.role),
            authority.certificate.subject,
            key,
            now,
            days,
            authority.certificate.not_valid_after_utc,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    return CertifiedKey(certificate, key)


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """The names and addresses by which its server is reached."""
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *map(str, addresses))


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether the authority has signed the certificate."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def days_left(certificate: x509.Certificate, now: float) -> float:
    """Until it ends; negative when it has."""
    return (certificate.not_valid_after_utc.timestamp() - now) / 86_400


def as_pem(*certificates: x509.Certificate) -> bytes:
    """The certificates one after the other."""
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: float,
    days: int,
    latest: datetime | None = None,
) -> x509.CertificateBuilder:
    start = datetime.fromtimestamp(now, UTC)
    end = start + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _CLOCKS_APART)
        .not_valid_after(end if latest is None else min(end, latest))
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
