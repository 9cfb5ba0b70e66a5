"""Kill -9 of whoever moves tables: real processes, real files, and never fewer complete copies than the catalog says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.live.killed_moves import move_under_fire, move_under_sleeping_leaders

pytestmark = pytest.mark.live


def test_kill_9_of_whoever_moves_tables(database_url: str, tmp_path: Path, generator: np.random.Generator) -> None:
    move_under_fire(database_url, tmp_path, tables=2, kills=2, generator=generator)


@pytest.mark.nightly
def test_two_of_which_the_leader_sleeps_move_each_table_once(
    database_url: str, tmp_path: Path, generator: np.random.Generator
) -> None:
    move_under_sleeping_leaders(database_url, tmp_path, tables=2, generator=generator)
