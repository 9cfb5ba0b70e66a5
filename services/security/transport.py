"""How tiers talk: in plain text, or by TLS with certificates on both sides, read from files that may change meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import grpc
import structlog
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from services.security.certificate_folder import CertificatesUnusable, certificates_in, key_in, read_content

_READS = 5
"""A certificate and its key are renewed one after the other: who reads them in between reads again."""

_log = structlog.get_logger(__name__)

FileState = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TransportFiles:
    """In PEM format: our certificate, its key, and the authorities that are trusted."""

    certificate: Path
    key: Path
    authority: Path

    def contents(self) -> tuple[bytes, bytes, bytes]:
        """Of certificate, key and authorities. Raises CertificatesUnusable when they are missing, do not fit, or have ended."""
        certificate, key = self._pair()
        first = certificates_in(self.certificate, certificate)[0]
        if first.not_valid_after_utc < datetime.now(UTC):
            raise CertificatesUnusable(
                f"the certificate {self.certificate} ended at {first.not_valid_after_utc:%Y-%m-%d %H:%M} UTC;"
                " `topmast certs rotate` makes a new one"
            )
        authority = read_content(self.authority)
        certificates_in(self.authority, authority)
        return certificate, key, authority

    def _pair(self) -> tuple[bytes, bytes]:
        """A certificate and its key: what was looked at, for the files may have others a moment later."""
        for _ in range(_READS):
            certificate, key = read_content(self.certificate), read_content(self.key)
            private = cast("PrivateKeyTypes", key_in(self.key, key))
            if private.public_key() == certificates_in(self.certificate, certificate)[0].public_key():
                return certificate, key
        raise CertificatesUnusable(
            f"the key {self.key} does not belong to the certificate {self.certificate}; name the two that were made together"
        )

    def state(self) -> FileState:
        """Changes whenever one of the files does."""
        looks = [file.stat() for file in (self.certificate, self.key, self.authority)]
        return tuple((look.st_ino, look.st_mtime_ns, look.st_size) for look in looks)


@dataclass(frozen=True, slots=True)
class TransportSecurity:
    """`files` None: plain text. `requires_client_certificates`: of everybody, not of tiers alone."""

    files: TransportFiles | None = None
    requires_client_certificates: bool = False

    def asks_for_certificates(self, *, between_tiers: bool = False) -> bool:
        """Whether a server asks its callers for one."""
        return self.files is not None and (between_tiers or self.requires_client_certificates)

    def server_credentials(self, *, between_tiers: bool) -> grpc.ServerCredentials | None:
        """None for plain text. What it accepts, and shows, follows the files. Raises CertificatesUnusable."""
        if self.files is None:
            return None
        required = self.asks_for_certificates(between_tiers=between_tiers)
        certificates = _FollowedFiles(self.files, required=required)
        return grpc.dynamic_ssl_server_credentials(certificates.first, certificates.changed, required)  # type: ignore[arg-type]  # None says that nothing has changed

    def state(self) -> FileState:
        """Of the files: a channel that was made with others may not be able to connect again. Nothing while one is missing."""
        try:
            return () if self.files is None else self.files.state()
        except OSError:
            return ()

    def authority(self) -> str:
        """In PEM, as it is now, for programs that call as nobody in particular; empty for plain text. Raises CertificatesUnusable."""
        return "" if self.files is None else self.files.contents()[2].decode("ascii", "replace")

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """None for plain text; those of the files as they are now. Raises CertificatesUnusable."""
        if self.files is None:
            return None
        certificate, key, authority = self.files.contents()
        return grpc.ssl_channel_credentials(authority, key, certificate)


PLAINTEXT = TransportSecurity()


class _FollowedFiles:
    """gRPC asks before each handshake whether there are others than the ones it has."""

    def __init__(self, files: TransportFiles, *, required: bool) -> None:
        self._files = files
        self._required = required
        # The look comes first: what changes after it is seen as a change.
        self._seen = TransportSecurity(files).state()
        self.first = self._read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """None while nothing has changed; what cannot be used is not taken."""
        try:
            seen = self._files.state()
            if seen == self._seen:
                return None
            configuration = self._read()
        except (OSError, CertificatesUnusable) as error:
            _log.warning("the certificates cannot be read anew; going on with the former ones", error=str(error))
            return None
        self._seen = seen
        _log.info("took new certificates", certificate=str(self._files.certificate))
        return configuration

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, authority = self._files.contents()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], authority)
