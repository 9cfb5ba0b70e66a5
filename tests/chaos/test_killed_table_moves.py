"""Many tables move while whoever moves them is killed again and again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.live.killed_moves import move_under_fire

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]


def test_never_loses_a_copy_however_often_movers_are_killed(
    database_url: str, tmp_path: Path, generator: np.random.Generator
) -> None:
    move_under_fire(database_url, tmp_path, tables=8, kills=25, generator=generator)
