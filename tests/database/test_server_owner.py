import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.database.server_owner import (
    ServerOwner,
    ServerOwnerFailed,
    choose_owner,
    let_through,
    make_private_folder,
    make_readable,
    run_as,
    server_environment,
)

_NOBODY = ServerOwner("nobody", 65534, 65534)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to run something as another user")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder that others may not enter, in a folder that they may not enter."""
    with tempfile.TemporaryDirectory(prefix="topmast-owner-") as top:
        folder = Path(top) / "closed"
        folder.mkdir(mode=0o700)
        yield folder


def test_owner_is_ourselves_unless_we_are_root(closed: Path) -> None:
    owner = choose_owner(closed / "not made yet")
    assert owner.user_id != 0
    assert owner.is_ourselves == (os.geteuid() != 0)
    (closed / "data").mkdir()
    assert choose_owner(closed / "data") == owner


@needs_root
def test_whoever_owns_the_data_goes_on_with_it_also_without_a_name(closed: Path) -> None:
    os.chown(closed, 64321, 64322)
    assert choose_owner(closed) == ServerOwner("64321", 64321, 64322)


@needs_root
def test_only_what_stops_the_owner_is_opened_and_only_for_passing(closed: Path) -> None:
    secret = closed / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    private = closed / "private"
    make_private_folder(private, _NOBODY)
    assert run_as(_NOBODY, ["ls", private], cwd=Path("/")).returncode != 0
    let_through(closed, _NOBODY)
    assert run_as(_NOBODY, ["ls", private], cwd=Path("/")).returncode == 0
    assert run_as(_NOBODY, ["ls", closed], cwd=Path("/")).returncode != 0
    assert run_as(_NOBODY, ["cat", secret], cwd=Path("/")).returncode != 0
    assert stat.S_IMODE(closed.stat().st_mode) == 0o701


@needs_root
def test_programs_installed_for_root_only_become_usable(closed: Path) -> None:
    program = closed / "bin" / "program"
    program.parent.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\necho it runs\n")
    program.chmod(0o700)
    make_readable(closed, _NOBODY)
    result = run_as(_NOBODY, [program], cwd=Path("/"))
    assert (result.returncode, result.stdout) == (0, "it runs\n")


@needs_root
def test_private_folder_must_be_ours(closed: Path) -> None:
    taken = closed / "taken"
    taken.mkdir()
    os.chown(taken, 64321, 64322)
    link = closed / "link"
    link.symlink_to(closed)
    for folder in (taken, link):
        with pytest.raises(ServerOwnerFailed, match="belongs to someone else"):
            make_private_folder(folder, _NOBODY)


def test_server_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATA", "/elsewhere")
    assert set(server_environment()) == {"PATH", "LC_ALL", "TZ"}
