"""examples/scheduler.yaml calls itself complete: it names every section and every field, with its default."""

from __future__ import annotations

from pathlib import Path

from formats.schema import Schema
from services.configuration import Configuration, load_configuration

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.yaml"
NAMED_IN_A_COMMENT = {"resize_pause_s"}
"""It is refused unless an elastic policy uses it."""
NOT_THE_DEFAULT = {"priorities", "estimates"}
"""They show what can be said."""


def test_the_example_names_every_setting_with_its_default() -> None:
    example, defaults = load_configuration(EXAMPLE), Configuration()
    missing = []
    for section in Configuration.model_fields:
        if section not in example.model_fields_set | NAMED_IN_A_COMMENT:
            missing.append(section)
        found = getattr(example, section)
        if isinstance(found, Schema) and section not in NOT_THE_DEFAULT:
            missing += [
                f"{section}.{field}" for field in type(found).model_fields if field not in found.model_fields_set
            ]
        assert section in NOT_THE_DEFAULT or found == getattr(defaults, section), section
    assert missing == []
