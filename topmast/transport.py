"""How a client talks to Topmast: in plain text, or by TLS with what its keywords or the environment name."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import NamedTuple

import grpc

from topmast.messages import refused

AUTHORITY_VARIABLE = "TOPMAST_TLS_CA"
CERTIFICATE_VARIABLE = "TOPMAST_TLS_CERTIFICATE"
KEY_VARIABLE = "TOPMAST_TLS_KEY"

FileName = str | os.PathLike[str]


def tls_credentials(
    credentials: grpc.ChannelCredentials | None = None,
    certificate_authority: FileName | None = None,
    certificate: FileName | None = None,
    key: FileName | None = None,
) -> grpc.ChannelCredentials | None:
    """What a channel is made with; None: plain text. `credentials` count before all else.

    Raises InvalidArgumentError for a file that cannot be read, and for a certificate without its key or without authority.
    """
    if credentials is not None:
        return credentials
    authority = _named("certificate_authority", certificate_authority, AUTHORITY_VARIABLE)
    own = _named("certificate", certificate, CERTIFICATE_VARIABLE)
    own_key = _named("key", key, KEY_VARIABLE)
    if authority is None:
        for said in (own, own_key):
            if said is not None:
                raise refused(
                    said.name, f"needs the certificate authority as well: name its file with {AUTHORITY_VARIABLE}"
                )
        return None
    if own is None or own_key is None:
        if own is not None:
            raise refused(own.name, f"needs its key as well: name its file with {KEY_VARIABLE}")
        if own_key is not None:
            raise refused(own_key.name, f"needs its certificate as well: name its file with {CERTIFICATE_VARIABLE}")
        return grpc.ssl_channel_credentials(authority.content)
    _require_fit(own, own_key)
    return grpc.ssl_channel_credentials(authority.content, own_key.content, own.content)


class _NamedFile(NamedTuple):
    name: str
    """The keyword or the variable that names it."""
    file: Path
    content: bytes


def _named(keyword: str, file: FileName | None, variable: str) -> _NamedFile | None:
    """Who names the file, and what is in it."""
    said, name = (file, keyword) if file is not None else (os.environ.get(variable), variable)
    if not said:
        return None
    try:
        content = Path(said).expanduser().read_bytes()
    except OSError as error:
        raise refused(name, f"the file {said} cannot be read: {error.strerror}") from error
    wanted = b"PRIVATE KEY-----" if keyword == "key" else b"-----BEGIN CERTIFICATE-----"
    if wanted not in content:
        what = "private key" if keyword == "key" else "certificate"
        raise refused(name, f"the file {said} has no {what} in PEM format")
    return _NamedFile(name, Path(said).expanduser(), content)


def _require_fit(certificate: _NamedFile, key: _NamedFile) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate.file, key.file, password=_no_password)
    except ssl.SSLError as error:
        raise refused(
            key.name,
            f"the key {key.file} does not belong to the certificate {certificate.file}; name the two that were made together",
        ) from error


def _no_password() -> str:
    """Instead of asking at the terminal."""
    return ""
