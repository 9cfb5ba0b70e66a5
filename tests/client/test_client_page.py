"""docs/python-client.md is true: its examples run, one after the other, against a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import topmast
from tests.client.loopback_server import LoopbackServer

PAGE = (Path(__file__).parents[2] / "docs" / "python-client.md").read_text(encoding="utf-8")


def test_every_example_runs(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOPMAST_ADDRESS", server.address)
    examples = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        exec(compile(example, "docs/python-client.md", "exec"), {})  # noqa: S102 -- our own examples
    assert len(server.topmast.workloads) > 2_500
    assert server.topmast.calls["ApplyTenants"] == 1


def test_every_error_is_on_the_page() -> None:
    errors = [name for name in topmast.__all__ if name.endswith("Error")]
    assert len(errors) > 8
    assert [name for name in errors if f"`{name}`" not in PAGE] == []
