"""`topmast certs`: what is made, how it is renewed, what is refused."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from services.command_line.main import app
from services.security.certificate_folder import (
    CertificatesUnusable,
    add_client,
    finish_rotation,
    held_certificates,
    initialize,
    read_certificates,
    rotate,
)
from services.security.certificate_identity import (
    TIER,
    CertificateIdentity,
    identity_from_uri,
    identity_of,
    peer_identity,
)
from services.security.certificate_principal import principal_of_peer
from services.security.certificates import hosts_of
from tests.security.certificate_worlds import made


def _command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["certs", *words])
    return result.exit_code, result.output


def test_a_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    assert _command("init", "--out", str(folder), "--host", "east.example", "--days", "10")[0] == 0
    assert _command("client", "ann", "--folder", str(folder), "--role", "tenant", "--tenant", "vision")[0] == 0
    modes = {file.relative_to(tmp_path): stat.S_IMODE(file.stat().st_mode) for file in folder.rglob("*")}
    assert {mode for path, mode in modes.items() if path.suffix} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "clients").stat().st_mode) == 0o700
    (tier,) = read_certificates(folder / "tier.pem")
    assert identity_of(tier) == TIER
    assert set(hosts_of(tier)) == {"localhost", "127.0.0.1", "::1", "east.example"}
    (ann,) = read_certificates(folder / "clients" / "ann.pem")
    assert identity_of(ann) == CertificateIdentity("tenant", "ann", ("vision",))
    assert list(tmp_path.iterdir()) == [folder]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    folder = made(tmp_path / "certificates")
    before = (folder / "authority-key.pem").read_bytes()
    code, said = _command("init", "--out", str(folder))
    assert code == 4
    assert "has an authority already" in said
    add_client(folder, CertificateIdentity("admin", "ann"), time.time(), 5)
    with pytest.raises(CertificatesUnusable, match="has a certificate for ann already"):
        add_client(folder, CertificateIdentity("admin", "ann"), time.time(), 5)
    (folder / "tier-key.pem").unlink()
    for words in (("init", "--out"), ("show", "--folder"), ("rotate", "--folder")):
        code, said = _command(*words, str(folder))
        assert code == 4
        assert "only half there" in said
    assert (folder / "authority-key.pem").read_bytes() == before


def test_an_authority_is_made_where_it_is_said_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    monkeypatch.chdir(tmp_path / "real")
    for name, target in (("link", "real"), ("dangling", "nowhere")):
        (tmp_path / name).symlink_to(tmp_path / target)
        assert _command("init", "--out", str(tmp_path / name)) == (
            4,
            f"topmast: --out: {tmp_path / name} is a link; name the folder itself, from outside of it\n",
        )
    code, said = _command("init", "--out", ".")
    assert code == 4
    assert "is the folder in which you are" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "link", "real"]
    assert list((tmp_path / "real").iterdir()) == []


def test_never_does_a_tenant_without_a_name_stand_for_all(tmp_path: Path) -> None:
    folder = made(tmp_path / "certificates")
    code, said = _command("client", "eve", "--folder", str(folder), "--role", "read-only", "--tenant", "")
    assert code in (2, 4)
    assert "--tenant" in said
    assert list((folder / "clients").iterdir()) == []
    nobody = CertificateIdentity("read-only", "eve", ("",))
    assert identity_from_uri(nobody.uri()) == nobody
    uris = {"x509_subject_alternative_name": [nobody.uri().encode()]}
    assert principal_of_peer(uris) is None


@pytest.mark.parametrize("name", ["", "../ann", "a/b", ".hidden", "a" * 64])
def test_a_name_that_would_leave_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    folder = made(tmp_path / "certificates")
    with pytest.raises(CertificatesUnusable, match="NAME"):
        add_client(folder, CertificateIdentity("admin", name), time.time(), 5)
    with pytest.raises(CertificatesUnusable, match="--role: tier is for tiers"):
        add_client(folder, CertificateIdentity("tier", "ann"), time.time(), 5)
    with pytest.raises(CertificatesUnusable, match="--host"):
        initialize(tmp_path / "other", ["not a host"], time.time(), 5)
    assert not (tmp_path / "other").exists()


def test_a_rotation_keeps_identities_and_is_ended_once(tmp_path: Path) -> None:
    folder = made(tmp_path / "certificates")
    add_client(folder, CertificateIdentity("admin", "ann"), time.time(), 5)
    former = read_certificates(folder / "authority.pem")
    rotate(folder, time.time(), 10)
    assert read_certificates(folder / "authority.pem")[1:] == former
    assert identity_of(read_certificates(folder / "clients" / "ann.pem")[0]) == CertificateIdentity("admin", "ann")
    with pytest.raises(CertificatesUnusable, match="a rotation is under way"):
        rotate(folder, time.time(), 10)
    finish_rotation(folder)
    assert len(read_certificates(folder / "authority.pem")) == 1
    assert all(held.is_current for held in held_certificates(folder))
    with pytest.raises(CertificatesUnusable, match="no rotation is under way"):
        finish_rotation(folder)


def test_a_rotation_adds_hosts_to_the_certificate_of_the_tiers_alone(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    initialize(folder, ["east-1"], time.time(), 10)
    add_client(folder, CertificateIdentity("admin", "ann"), time.time(), 5)
    with pytest.raises(CertificatesUnusable, match="--host"):
        rotate(folder, time.time(), 10, ["not a host"])
    assert len(read_certificates(folder / "authority.pem")) == 1
    code, said = _command("rotate", "--folder", str(folder), "--host", "west-1", "--host", "east-1")
    assert (code, "the former one is trusted" in said) == (0, True)
    tiers = read_certificates(folder / "tier.pem")[0]
    assert {"localhost", "east-1", "west-1"} <= set(hosts_of(tiers))
    assert hosts_of(read_certificates(folder / "clients" / "ann.pem")[0]) == ()
    code, said = _command("rotate", "--folder", str(folder), "--finish", "--host", "north-1")
    assert (code, "leave it out" in said) == (2, True)


def test_a_rotation_that_was_cut_off_is_gone_on_with(tmp_path: Path) -> None:
    folder = made(tmp_path / "certificates")
    tier = {name: (folder / name).read_bytes() for name in ("tier.pem", "tier-key.pem")}
    rotate(folder, time.time(), 10)
    for name, content in tier.items():
        (folder / name).write_bytes(content)
    with pytest.raises(CertificatesUnusable, match="was cut off"):
        finish_rotation(folder)
    authority = (folder / "authority.pem").read_bytes()
    rotate(folder, time.time(), 10)
    assert (folder / "authority.pem").read_bytes() == authority
    finish_rotation(folder)


def test_show_warns_before_the_end_and_after_it(tmp_path: Path) -> None:
    initialize(tmp_path / "soon", [], time.time(), 10)
    code, said = _command("show", "--folder", str(tmp_path / "soon"))
    assert code == 0
    assert "days left" in said
    assert "topmast certs rotate" in said
    initialize(tmp_path / "over", [], time.time() - 9 * 86_400, 5)
    code, said = _command("show", "--folder", str(tmp_path / "over"))
    assert code == 1
    assert "has ended" in said


_NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=20)


@given(_NAMES, _NAMES.filter(lambda role: role != "tier"), st.lists(_NAMES, max_size=3))
@settings(max_examples=50)
def test_an_identity_is_read_as_it_was_written(name: str, role: str, tenants: list[str]) -> None:
    identity = CertificateIdentity(role, name, tuple(tenants))
    assert peer_identity({"x509_subject_alternative_name": [b"127.0.0.1", identity.uri().encode()]}) == identity


@pytest.mark.parametrize(
    "uri",
    [
        "topmast://client/ann?role=tier",
        "topmast://client/ann",
        "topmast://tier/x",
        "https://tier",
        "topmast://client?role=a",
        "topmast://[",
    ],
)
def test_never_a_tier_by_other_words(uri: str) -> None:
    assert identity_from_uri(uri) is None
    two = [b"topmast://tier", b"topmast://client/ann?role=admin"]
    assert peer_identity({"x509_subject_alternative_name": two}) is None


def test_up_refuses_tls_before_it_starts_anything(tmp_path: Path) -> None:
    folder, home = made(tmp_path / "certificates"), tmp_path / "home"
    named = {"certificate": "tier.pem", "key": "tier-key.pem", "certificate_authority": "authority.pem"}
    configuration = folder / "scheduler.yaml"
    configuration.write_text(f"tls: {named}\n", encoding="utf-8")
    said = CliRunner().invoke(app, ["up", "--home", str(home), "--config", str(configuration)])
    assert said.exit_code == 4
    assert "tls: is for `topmast serve`" in " ".join(said.output.split())
    assert not home.exists()
