"""Where the real traces are, on machines that have them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRACES_VARIABLE = "TOPMAST_TRACES"


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of public traces: TOPMAST_TRACES, else ../shared/traces beside the checkout. Skips without."""
    folder = Path(os.environ.get(TRACES_VARIABLE) or ROOT.parent / "shared" / "traces")
    if not (folder / "philly_jobs.csv.gz").is_file():
        pytest.skip(f"there are no public traces in {folder}; {TRACES_VARIABLE} says where they are")
    return folder
