"""Where the recorded cases of HiveD are, on machines that have them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[3]
CASES_VARIABLE = "TOPMAST_HIVED_CASES"
CASES = Path(os.environ.get(CASES_VARIABLE) or ROOT.parent / "shared" / "hived_cases")
"""TOPMAST_HIVED_CASES, else ../shared/hived_cases beside the checkout."""
ABSENT = f"the recorded cases of HiveD are not in {CASES}; {CASES_VARIABLE} says where they are"
