"""With which token a client calls, and to whom it never sends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from topmast import Client, InvalidArgumentError
from topmast.authorized_channel import authorized
from topmast.token import resolve_token

_ADDRESS = "127.0.0.1:4001"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One that is up at _ADDRESS, and has a token."""
    for variable in ("TOPMAST_TOKEN", "TOPMAST_TOKEN_FILE", "TOPMAST_ADDRESS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TOPMAST_HOME", str(tmp_path))
    (tmp_path / "address").write_text(_ADDRESS)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "admin.token").write_text("of-the-home\n")
    return tmp_path


def test_what_is_said_comes_before_the_environment_and_that_before_the_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_token(None, _ADDRESS)() == "of-the-home"
    (home / "file").write_text(" of-the-file \n")
    monkeypatch.setenv("TOPMAST_TOKEN_FILE", str(home / "file"))
    source = resolve_token(None, _ADDRESS)
    assert source() == "of-the-file"
    (home / "file").write_text("replaced\n")
    assert source() == "replaced"
    monkeypatch.setenv("TOPMAST_TOKEN", "of-the-environment")
    assert resolve_token(None, _ADDRESS)() == "of-the-environment"
    assert resolve_token("said", _ADDRESS)() == "said"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("address", ["127.0.0.1:4002", "elsewhere:4001", f"{_ADDRESS},elsewhere:4001"])
def test_never_is_the_token_of_a_home_sent_to_another_address(address: str) -> None:
    assert resolve_token(None, address)() is None


def test_of_several_addresses_of_a_home_each_gets_its_token(home: Path) -> None:
    (home / "address").write_text(f"{_ADDRESS},127.0.0.1:4002")
    assert resolve_token(None, "127.0.0.1:4002")() == "of-the-home"


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "nul\0", "ä", "x" * 20_000])
def test_what_can_be_no_token_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(
        InvalidArgumentError, match="token: must be a token as it was shown when it was made"
    ) as refused:
        Client(_ADDRESS, token=token)
    assert not token.strip() or token not in str(refused.value)


def test_a_named_file_must_be_there(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPMAST_TOKEN_FILE", str(home / "nowhere"))
    with pytest.raises(
        InvalidArgumentError, match=r"TOPMAST_TOKEN_FILE: names .*nowhere, which is no file with a token"
    ):
        Client(_ADDRESS)


def test_a_channel_adds_the_token_to_what_a_call_says_itself() -> None:
    class Channel:
        def unary_unary(self, method: str) -> Callable[..., object]:
            return lambda request, **options: (method, request, options["metadata"])

    token: list[str | None] = ["one"]
    channel = authorized(Channel(), lambda: token[0])
    call = channel.unary_unary("/Method")
    assert call("?", metadata=(("a", "b"),)) == ("/Method", "?", (("a", "b"), ("authorization", "Bearer one")))
    token[0] = None
    assert call("?", metadata=None) == ("/Method", "?", None)
