from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.extending.packages import ExamplePackage


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ExamplePackage], None]]:
    """Installs a package for as long as the test lasts, for this process and for those that it starts."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=":")
    installed: list[str] = []

    def put_there(package: ExamplePackage) -> None:
        package.install(site)
        installed.extend(package.modules)

    yield put_there
    for module in installed:
        sys.modules.pop(module, None)
