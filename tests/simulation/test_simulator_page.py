"""docs/simulator.md tells every setting with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from services.command_line.simulation_options import simulation_settings

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text(encoding="utf-8")


AUTO = "placement.packlimit"
"""Where nothing is set it is chosen automatically, and called so."""


def flat(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, object]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from flat(value, f"{name}.")
        else:
            yield prefix + name, value


def shown(name: str, value: object) -> str:
    """As in YAML."""
    if value is None:
        return "auto" if name == AUTO else "null"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def test_the_page_has_every_setting_and_its_default() -> None:
    printed = dict(re.findall(r"^\| `([\w.]+)` \| (\S+) \|", PAGE, re.MULTILINE))
    defaults = simulation_settings(None, [], regions_of_trace=False)
    assert printed == {name: shown(name, value) for name, value in flat(defaults)}
