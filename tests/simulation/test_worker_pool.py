"""A worker that dies, or whose run is refused, is told of; none is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from formats.problems import FormatError
from formats.trace import write_trace
from services.simulation.inputs import InputSource, read_inputs
from services.simulation.run import FinishedRun
from services.simulation.worker_pool import RunRequest, WorkerDied, WorkerSetup, run_all
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import RunProgress
from simulator.inputs.fleets import FleetSource
from tests.simulator.inputs.rows import random_rows


def never_finished(_position: int, _run: FinishedRun) -> None:
    pytest.fail("nothing should have come to its end")


def test_a_worker_that_is_killed_is_reported(tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    write_trace(trace, random_rows(20_000))
    setup = WorkerSetup(read_inputs(InputSource(trace, FleetSource(gpus=128))), SimulationSettings(), None)

    def kill(_position: int, _progress: RunProgress) -> None:
        for child in multiprocessing.active_children():
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(WorkerDied, match=r"ran mast with seed 3 ended \(signal 9\); it may have run out of memory"):
        run_all(setup, [RunRequest("mast", 3)], 1, on_progress=kill, on_finished=never_finished, go_on=lambda: True)
    assert multiprocessing.active_children() == []


def test_what_a_run_refuses_comes_back_as_it_is(trace: Path) -> None:
    setup = WorkerSetup(read_inputs(InputSource(trace, FleetSource(gpus=128))), SimulationSettings(), None)
    with pytest.raises(FormatError, match="msat: is no policy; did you mean mast"):
        run_all(
            setup,
            [RunRequest("msat", 1)],
            2,
            on_progress=lambda _position, _progress: None,
            on_finished=never_finished,
            go_on=lambda: True,
        )
    assert multiprocessing.active_children() == []
