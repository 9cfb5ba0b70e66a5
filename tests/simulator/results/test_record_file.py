"""What is loaded equals what was saved; what cannot be used is refused."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from formats.problems import FormatError
from simulator.results.record_file import LAYOUT, load_record, save_record
from simulator.results.run_record import RunRecord
from tests.simulator.results.small_runs import asked_at_random, run_of


def random_run(generator: np.random.Generator, count: int = 60) -> RunRecord:
    run = run_of(asked_at_random(generator, count, load=1.3, gpus=16, greatest=8), policy="urgent")
    return replace(run, tenants=("ads", "rééarch", "vision"), machine_down=((0, 0.1, 1 / 3), (1, 0.2, np.inf)))


def assert_same(one: object, other: object) -> None:
    """Equal in every field, columns bit for bit and of the same kind."""
    if is_dataclass(one):
        assert type(one) is type(other)
        for field in fields(one):
            assert_same(getattr(one, field.name), getattr(other, field.name))
    elif isinstance(one, np.ndarray):
        assert isinstance(other, np.ndarray)
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    else:
        assert one == other


def test_a_record_survives_the_file(tmp_path: Path, generator: np.random.Generator) -> None:
    path = tmp_path / "run.npz"
    run = random_run(generator)
    assert len(run.attempts) >= len(run.workloads) > 0
    save_record(path, run, {"wall_s": 0.1})
    saved = load_record(path)
    assert_same(saved.record, run)
    assert saved.notes == {"wall_s": 0.1}


def test_shares_with_times_of_their_own_survive_too(tmp_path: Path, generator: np.random.Generator) -> None:
    run = random_run(generator)
    times = np.where(np.arange(len(run.shares.machine)) % 2, 1.5, np.nan)
    run = replace(run, shares=replace(run.shares, from_s=times, until_s=times + 1))
    save_record(tmp_path / "run.npz", run)
    assert_same(load_record(tmp_path / "run.npz").record, run)


def test_what_is_no_record_is_refused(tmp_path: Path, generator: np.random.Generator) -> None:
    path = tmp_path / "run.npz"
    save_record(path, random_run(generator))
    content = path.read_bytes()
    with pytest.raises(FormatError, match="cannot be read"):
        load_record(tmp_path / "none.npz")
    for damaged in (b"", b"text", content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="is no run's tables"):
            load_record(path)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, document=np.frombuffer(json.dumps({"layout": 0}).encode(), dtype=np.uint8))
    with pytest.raises(FormatError, match=f"has the layout 0, not {LAYOUT}"):
        load_record(path)
