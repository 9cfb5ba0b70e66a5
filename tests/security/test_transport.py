"""TLS between tiers and with clients: who gets through, what the others are told, and new certificates without a restart."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from formats.problems import FormatError
from services.configuration import load_configuration
from services.security.certificate_folder import (
    CertificatesUnusable,
    add_client,
    finish_rotation,
    initialize,
    read_certificates,
    read_key,
    rotate,
)
from services.security.certificate_identity import TIER, CertificateIdentity
from services.security.certificates import CertifiedKey, issue
from services.security.transport import PLAINTEXT, TransportFiles, TransportSecurity
from services.tiers.tier_channel import tier_channel
from tests.security.certificate_worlds import answer_on, listening, made, security_of
from topmast import AsyncClient
from topmast.errors import InvalidArgumentError, TopmastError


async def _told(address: str, **files: Path) -> str:
    """What a client is told that calls; a tier without the front door knows no such method."""
    async with AsyncClient(address, attempts=1, timeout_s=10.0, **files) as client:  # type: ignore[arg-type]  # files only
        with pytest.raises(TopmastError) as told:
            await client.get("w")
    return str(told.value)


class _Ended(TransportFiles):
    """Files whose certificate ends between the look at it and the call: what a server shows that nobody has given a new one."""

    def contents(self) -> tuple[bytes, bytes, bytes]:
        return self.certificate.read_bytes(), self.key.read_bytes(), self.authority.read_bytes()


def _over(folder: Path) -> TransportSecurity:
    """A tier's that shows a certificate of the folder's authority that has ended."""
    key = read_key(folder / "authority-key.pem")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    authority = CertifiedKey(read_certificates(folder / "authority.pem")[0], key)
    ended = issue(authority, TIER, ["127.0.0.1"], time.time() - 9 * 86_400, 5)
    (folder / "ended.pem").write_bytes(ended.certificate_pem())
    (folder / "ended-key.pem").write_bytes(ended.key_pem())
    return TransportSecurity(_Ended(folder / "ended.pem", folder / "ended-key.pem", folder / "authority.pem"))


def test_tiers_need_certificates_of_the_same_authority(tmp_path: Path) -> None:
    ours, foreign = security_of(made(tmp_path / "ours")), security_of(made(tmp_path / "foreign"))

    async def run() -> None:
        async with listening(ours, between_tiers=True) as address:
            assert await answer_on(tier_channel(address, ours)) == "answers"
            assert "CERTIFICATE_VERIFY_FAILED" in await answer_on(tier_channel(address, foreign))
            assert "Socket closed" in await answer_on(tier_channel(address, PLAINTEXT))
            assert "it closed the connection at once" in await _told(
                address, certificate_authority=tmp_path / "ours" / "authority.pem"
            )

    asyncio.run(run())


def test_new_certificates_are_taken_without_a_restart(tmp_path: Path) -> None:
    folder = made(tmp_path / "ours")
    security, former = security_of(folder), tmp_path / "former"
    former.mkdir()
    for name in ("authority.pem", "tier.pem", "tier-key.pem"):
        (former / name).write_bytes((folder / name).read_bytes())

    async def run() -> None:
        async with listening(security, between_tiers=True) as address:
            rotate(folder, time.time(), 10)
            assert await answer_on(tier_channel(address, security)) == "answers"
            # Who has not been given anything new gets through until the rotation is ended.
            assert await answer_on(tier_channel(address, security_of(former))) == "answers"
            async with listening(security_of(former), between_tiers=True) as other:
                assert await answer_on(tier_channel(other, security)) == "answers"
            finish_rotation(folder)
            assert await answer_on(tier_channel(address, security)) == "answers"
            assert await answer_on(tier_channel(address, security_of(former))) != "answers"
            # What cannot be used is not taken.
            (folder / "tier-key.pem").write_bytes((former / "tier-key.pem").read_bytes())
            files = TransportFiles(former / "tier.pem", former / "tier-key.pem", folder / "authority.pem")
            assert "Socket closed" in await answer_on(tier_channel(address, TransportSecurity(files)))

    asyncio.run(run())


def test_clients_are_told_what_to_do(tmp_path: Path) -> None:
    ours, foreign = made(tmp_path / "ours"), made(tmp_path / "foreign")
    authority = ours / "authority.pem"
    add_client(ours, CertificateIdentity("admin", "ann"), time.time(), 5)

    async def run() -> None:
        async with listening(security_of(ours)) as address:
            reached = await _told(address, certificate_authority=authority)
            named = {"certificate": ours / "clients" / "ann.pem", "key": ours / "clients" / "ann-key.pem"}
            assert await _told(address, certificate_authority=authority, **named) == reached
            assert "does not answer" not in reached
            assert "TOPMAST_TLS_CA" in await _told(address)
            assert "not signed by the certificate authority" in await _told(
                address, certificate_authority=foreign / "authority.pem"
            )
        async with listening(security_of(ours), host="127.0.0.2") as address:
            assert "for other host names" in await _told(address, certificate_authority=authority)
        async with listening(_over(ours)) as address:
            assert "its certificate has ended" in await _told(address, certificate_authority=authority)
        async with listening(PLAINTEXT) as address:
            assert "it talks in plain text" in await _told(address, certificate_authority=authority)

    asyncio.run(run())


def test_several_addresses_are_known_by_the_name_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "ours"
    initialize(folder, ["first.invalid"], time.time(), 10)

    async def run() -> None:
        async with listening(security_of(folder), host="127.0.0.2") as address:
            for known, several in ((True, f"first.invalid:1,{address}"), (False, f"other.invalid:1,{address}")):
                told = await _told(several, certificate_authority=folder / "authority.pem")
                assert ("for other host names" not in told) is known, told
                assert ("does not answer" not in told and "serves nobody" in told) is known, told

    asyncio.run(run())


def test_files_that_do_not_fit_are_refused_before_any_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, foreign = made(tmp_path / "ours"), made(tmp_path / "foreign")
    authority, certificate, key = ours / "authority.pem", ours / "tier.pem", ours / "tier-key.pem"
    for files, sentence in (
        ({"certificate_authority": tmp_path / "none.pem"}, "certificate_authority.*cannot be read"),
        ({"certificate_authority": key}, "certificate_authority.*no certificate in PEM format"),
        ({"certificate": certificate, "key": key}, "needs the certificate authority as well"),
        ({"certificate_authority": authority, "certificate": certificate}, "needs its key as well"),
        ({"certificate_authority": authority, "key": key}, "needs its certificate as well"),
        (
            {"certificate_authority": authority, "certificate": certificate, "key": foreign / "tier-key.pem"},
            "does not belong to the certificate",
        ),
    ):
        with pytest.raises(InvalidArgumentError, match=sentence):
            AsyncClient("127.0.0.1:1", **files)  # type: ignore[arg-type]  # files only
    monkeypatch.setenv("TOPMAST_TLS_CA", str(tmp_path / "none.pem"))
    with pytest.raises(InvalidArgumentError, match=r"TOPMAST_TLS_CA.*cannot be read"):
        AsyncClient("127.0.0.1:1")


def test_never_is_a_certificate_served_with_the_key_of_another(tmp_path: Path) -> None:
    """While both are renewed, one after the other, again and again."""
    ours, others = made(tmp_path / "ours"), made(tmp_path / "others")
    files = TransportFiles(ours / "tier.pem", ours / "tier-key.pem", ours / "authority.pem")
    contents = [[(folder / name).read_bytes() for name in ("tier.pem", "tier-key.pem")] for folder in (ours, others)]
    ended = threading.Event()

    def renew() -> None:
        for certificate, key in itertools.cycle(contents):
            for file, content in ((files.key, key), (files.certificate, certificate)):
                written = file.with_suffix(".new")
                written.write_bytes(content)
                written.replace(file)
            if ended.is_set():
                return

    renewing = threading.Thread(target=renew)
    renewing.start()
    try:
        served = []
        for _ in range(400):
            with suppress(CertificatesUnusable):
                served.append([*files.contents()[:2]])
    finally:
        ended.set()
        renewing.join()
    assert all(pair in contents for pair in served)
    assert [*files.contents()[:2]] in contents


def test_a_tier_refuses_files_that_cannot_be_used(tmp_path: Path) -> None:
    ours, foreign = made(tmp_path / "ours"), made(tmp_path / "foreign")
    initialize(tmp_path / "over", [], time.time() - 9 * 86_400, 5)
    (ours / "other-key.pem").write_bytes((foreign / "tier-key.pem").read_bytes())
    settings = tmp_path / "scheduler.yaml"
    for section, sentence in (
        ("{certificate: ours/tier.pem}", "key and certificate_authority must be said as well"),
        ("{client_certificates: required}", "cannot be required without TLS"),
        (
            "{certificate: ours/none.pem, key: ours/tier-key.pem, certificate_authority: ours/authority.pem}",
            "cannot be read",
        ),
        (
            "{certificate: ours/tier.pem, key: ours/other-key.pem, certificate_authority: ours/authority.pem}",
            "does not belong to the certificate",
        ),
        ("{certificate: over/tier.pem, key: over/tier-key.pem, certificate_authority: over/authority.pem}", "ended at"),
    ):
        settings.write_text(f"tls: {section}\n", encoding="utf-8")
        with pytest.raises(FormatError, match=sentence):
            load_configuration(settings)
    with pytest.raises(CertificatesUnusable, match="ended at"):
        security_of(tmp_path / "over").server_credentials(between_tiers=True)
    settings.write_text(
        "tls: {certificate: ours/tier.pem, key: ours/tier-key.pem, certificate_authority: ours/authority.pem}\n",
        encoding="utf-8",
    )
    assert load_configuration(settings).tls.security() == security_of(ours)
