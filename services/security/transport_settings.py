"""The section `tls` of scheduler.yaml."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from formats.problems import FieldProblem, FormatError
from formats.schema import Schema
from services.security.certificate_folder import CertificatesUnusable
from services.security.transport import PLAINTEXT, TransportFiles, TransportSecurity

FileName = Annotated[str, Field(min_length=1)]


class ClientCertificates(StrEnum):
    """Whether whoever calls must show a certificate."""

    REQUIRED = "required"
    NOT_ASKED = "not_asked"


class TransportSettings(Schema):
    """Files in PEM format, named from where scheduler.yaml is; all three, or none: then tiers talk in plain text."""

    certificate: FileName | None = None
    key: FileName | None = None
    certificate_authority: FileName | None = None
    """Who must have signed the certificates of others; several while a rotation is under way."""
    client_certificates: Annotated[ClientCertificates, Field(strict=False)] = ClientCertificates.NOT_ASKED
    """Of clients; regional schedulers, which only tiers call, always ask for them, and nobody asks tasks."""

    @model_validator(mode="after")
    def _all_or_none(self) -> TransportSettings:
        files = {name: getattr(self, name) for name in ("certificate", "key", "certificate_authority")}
        missing = [name for name, file in files.items() if file is None]
        if missing and len(missing) < len(files):
            raise ValueError(f"{' and '.join(missing)} must be said as well: TLS needs all three files")
        if len(missing) == len(files) and self.client_certificates is ClientCertificates.REQUIRED:
            raise ValueError(
                "client_certificates cannot be required without TLS: say certificate, key and certificate_authority"
            )
        return self

    def beside(self, folder: Path) -> TransportSettings:
        """The same, with the files named from the folder."""
        if self.certificate is None or self.key is None or self.certificate_authority is None:
            return self
        named = {
            "certificate": str(folder / self.certificate),
            "key": str(folder / self.key),
            "certificate_authority": str(folder / self.certificate_authority),
        }
        return self.model_copy(update=named)

    def security(self) -> TransportSecurity:
        """What servers and channels go by."""
        if self.certificate is None or self.key is None or self.certificate_authority is None:
            return PLAINTEXT
        files = TransportFiles(Path(self.certificate), Path(self.key), Path(self.certificate_authority))
        return TransportSecurity(files, self.client_certificates is ClientCertificates.REQUIRED)

    def check(self, source: str) -> None:
        """Raises FormatError when the files cannot be used."""
        try:
            self.security().channel_credentials()
        except CertificatesUnusable as unusable:
            raise FormatError(source, [FieldProblem("tls", str(unusable))]) from unusable
