"""The folder of a private authority: what `topmast certs` makes, renews and shows.

authority.pem: who is trusted, the newest first; authority-key.pem; tier.pem, tier-key.pem; clients/NAME.pem, clients/NAME-key.pem.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from services.security.certificate_identity import TIER, TIER_ROLE, CertificateIdentity, identity_of
from services.security.certificate_principal import problem_of
from services.security.certificates import (
    CertifiedKey,
    as_pem,
    hosts_of,
    is_issued_by,
    issue,
    new_authority,
    vouch,
)

USUAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HOST = re.compile(r"(?!-)(\*\.)?[A-Za-z0-9:]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?")


class CertificatesUnusable(Exception):
    """The folder, or what was asked of it, cannot be used; the message says what to do."""


@dataclass(frozen=True, slots=True)
class HeldCertificate:
    """A certificate of the folder, and whether the authority that signs now has signed it."""

    file: Path
    certificate: x509.Certificate
    is_current: bool


def initialize(folder: Path, hosts: Sequence[str], now: float, days: int) -> None:
    """Makes an authority and the tiers' certificate, all or nothing. Raises CertificatesUnusable where anything is already."""
    _check_hosts(hosts)
    if folder.is_symlink() or folder.resolve() == Path.cwd():
        what = "a link" if folder.is_symlink() else "the folder in which you are"
        raise CertificatesUnusable(f"--out: {folder} is {what}; name the folder itself, from outside of it")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        _read_whole(folder)
        raise CertificatesUnusable(
            f"{folder} has an authority already, and nothing was written; `topmast certs rotate` makes a new one"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # mkdtemp makes it for its owner alone (0700).
    making = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        authority = new_authority(now, days)
        _write(making / "authority-key.pem", authority.key_pem())
        _write_leaf(making, "tier", issue(authority, TIER, tuple(dict.fromkeys((*USUAL_HOSTS, *hosts))), now, days))
        (making / "clients").mkdir(mode=0o700)
        _write(making / "authority.pem", authority.certificate_pem())
        # Takes the place of an empty folder, and of no other.
        making.rename(folder)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _check_hosts(hosts: Sequence[str]) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise CertificatesUnusable(f"--host: '{host}' is neither a host name nor an address")


def add_client(folder: Path, identity: CertificateIdentity, now: float, days: int) -> Path:
    """Makes the certificate of a client; returns its file. Raises CertificatesUnusable, also where it has one."""
    if not _NAME.fullmatch(identity.name):
        raise CertificatesUnusable(
            f"NAME: '{identity.name}' must be letters, digits, dots, dashes and underscores, at most 63"
        )
    if identity.role == TIER_ROLE:
        raise CertificatesUnusable("--role: tier is for tiers, which have their certificate; choose another role")
    problem = problem_of(identity)
    if problem is not None:
        raise CertificatesUnusable(problem)
    with _locked(folder):
        authority, _ = _read_whole(folder)
        if (folder / "clients" / f"{identity.name}.pem").exists():
            raise CertificatesUnusable(
                f"{folder} has a certificate for {identity.name} already, and nothing was written;"
                " delete its two files first to make another one"
            )
        return _write_leaf(
            folder / "clients", identity.name, issue(authority, identity, (), now, days), _vouched(folder, authority)
        )


def rotate(folder: Path, now: float, days: int, hosts: Sequence[str] = ()) -> None:
    """A new authority beside the present one, which stays trusted, and new certificates for all. Raises CertificatesUnusable.

    That of the tiers is good for `hosts` as well, as those of a new region.

    One that was cut off is gone on with: whoever signs is the authority whose key is there.
    """
    _check_hosts(hosts)
    with _locked(folder):
        authority, trusted = _read_whole(folder)
        if len(trusted) > 1 and trusted[0] == authority.certificate:
            if all(leaf.is_current for leaf in _leaves(folder, authority.certificate)):
                raise CertificatesUnusable(
                    f"{folder}: a rotation is under way; end it with --finish when everybody has the new certificates"
                )
        else:
            former, authority = authority, new_authority(now, days)
            # Sent along with each certificate, for those who know the former authority alone.
            _write(folder / "authority-vouched.pem", as_pem(vouch(former, authority)))
            # Who is trusted first: from then on either key may sign.
            _write(folder / "authority.pem", as_pem(authority.certificate, former.certificate))
            _write(folder / "authority-key.pem", authority.key_pem())
        for leaf in _leaves(folder, authority.certificate):
            identity = identity_of(leaf.certificate)
            if identity is None:
                raise CertificatesUnusable(f"{leaf.file} names no identity; delete it and its key, and rotate again")
            added = hosts if identity == TIER else ()
            names = tuple(dict.fromkeys((*hosts_of(leaf.certificate), *added)))
            renewed = issue(authority, identity, names, now, days)
            _write_leaf(leaf.file.parent, leaf.file.stem, renewed, _vouched(folder, authority))


def finish_rotation(folder: Path) -> None:
    """The former authority is trusted no more. Raises CertificatesUnusable where no rotation is under way, or it is not whole."""
    with _locked(folder):
        authority, trusted = _read_whole(folder)
        if len(trusted) == 1:
            raise CertificatesUnusable(f"{folder}: no rotation is under way; leave --finish out to begin one")
        old = [leaf.file.name for leaf in _leaves(folder, authority.certificate) if not leaf.is_current]
        if old or trusted[0] != authority.certificate:
            raise CertificatesUnusable(f"{folder}: the rotation was cut off; run `topmast certs rotate` again first")
        _write(folder / "authority.pem", authority.certificate_pem())
        (folder / "authority-vouched.pem").unlink(missing_ok=True)


def held_certificates(folder: Path) -> tuple[HeldCertificate, ...]:
    """All certificates of the folder: authorities, tiers, clients by name. Raises CertificatesUnusable."""
    authority, trusted = _read_whole(folder)
    authorities = (HeldCertificate(folder / "authority.pem", one, one == authority.certificate) for one in trusted)
    return (*authorities, *_leaves(folder, authority.certificate))


def _leaves(folder: Path, authority: x509.Certificate) -> tuple[HeldCertificate, ...]:
    clients = sorted(file for file in (folder / "clients").glob("*.pem") if not file.stem.endswith("-key"))
    return tuple(
        HeldCertificate(file, leaf, is_issued_by(leaf, authority))
        for file in (folder / "tier.pem", *clients)
        for leaf in read_certificates(file)[:1]
    )


def _read_whole(folder: Path) -> tuple[CertifiedKey, tuple[x509.Certificate, ...]]:
    """The authority that signs, and all that are trusted."""
    if not folder.is_dir():
        raise CertificatesUnusable(
            f"{folder} is no folder of certificates; `topmast certs init --out {folder}` makes one"
        )
    wanted = ("authority.pem", "authority-key.pem", "tier.pem", "tier-key.pem")
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise CertificatesUnusable(
            f"{folder} has no {' and no '.join(missing)}: it is only half there, or no folder of certificates;"
            " choose another folder, or empty this one"
        )
    trusted = read_certificates(folder / "authority.pem")
    key = read_key(folder / "authority-key.pem")
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificatesUnusable(f"{folder / 'authority-key.pem'} was not made by `topmast certs init`")
    for certificate in trusted:
        if certificate.public_key() == key.public_key():
            return CertifiedKey(certificate, key), trusted
    raise CertificatesUnusable(f"{folder}: authority-key.pem fits no certificate in authority.pem; bring both back")


def read_certificates(file: Path) -> tuple[x509.Certificate, ...]:
    """Those of a file, at least one. Raises CertificatesUnusable."""
    return certificates_in(file, read_content(file))


def read_key(file: Path) -> object:
    """The private key of a file. Raises CertificatesUnusable."""
    return key_in(file, read_content(file))


def read_content(file: Path) -> bytes:
    """What stands in it now. Raises CertificatesUnusable."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise CertificatesUnusable(f"{file} cannot be read: {error.strerror}") from error


def certificates_in(file: Path, content: bytes) -> tuple[x509.Certificate, ...]:
    """At least one, in what was read of the file. Raises CertificatesUnusable."""
    try:
        return tuple(x509.load_pem_x509_certificates(content))
    except ValueError as error:
        raise CertificatesUnusable(f"{file} has no certificate in PEM format") from error


def key_in(file: Path, content: bytes) -> object:
    """The private key in what was read of the file. Raises CertificatesUnusable."""
    try:
        return serialization.load_pem_private_key(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificatesUnusable(f"{file} has no private key in PEM format without a password") from error


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time changes the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        # Whoever reads it says what is wrong.
        _read_whole(folder)
        raise
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _vouched(folder: Path, authority: CertifiedKey) -> tuple[x509.Certificate, ...]:
    """What the former authority says of this one, while a rotation is under way."""
    file = folder / "authority-vouched.pem"
    said = read_certificates(file) if file.exists() else ()
    return tuple(one for one in said if one.public_key() == authority.certificate.public_key())


def _write_leaf(folder: Path, name: str, leaf: CertifiedKey, chain: Sequence[x509.Certificate] = ()) -> Path:
    _write(folder / f"{name}-key.pem", leaf.key_pem())
    _write(folder / f"{name}.pem", as_pem(leaf.certificate, *chain))
    return folder / f"{name}.pem"


def _write(file: Path, content: bytes) -> None:
    """The whole file or the former one, for its owner alone, on the disk."""
    # mkstemp makes it for its owner alone (0600).
    descriptor, making = tempfile.mkstemp(prefix=".new-", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(making).replace(file)
    except BaseException:
        Path(making).unlink(missing_ok=True)
        raise
