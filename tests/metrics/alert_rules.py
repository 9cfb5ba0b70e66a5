"""The alert rules that ship, by name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

OBSERVABILITY = Path(__file__).parents[2] / "deploy" / "observability"
ALERTS = OBSERVABILITY / "prometheus" / "alerts.yaml"


def alert_rules() -> Mapping[str, Mapping[str, Any]]:
    """As they stand in the file."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}
