"""How long an assignment of machines to clusters is looked for, apart from what looks: commands know it without HiGHS."""

from __future__ import annotations

DEFAULT_TIME_LIMIT_S = 40.0
"""For each region."""
GREATEST_TIME_LIMIT_S = 3600.0
