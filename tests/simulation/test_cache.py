"""The cache never finds what would come out differently, and never grows without bound."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from services.simulation.cache import SimulationCache, code_digest, default_folder, key_of_run
from services.simulation.inputs import InputSource, SimulationInputs, input_of_run, read_inputs
from simulator.baselines.fifo import FIFO
from simulator.baselines.mast import MAST
from simulator.engine.settings import SimulationSettings
from simulator.inputs.fleets import FleetSource
from simulator.inputs.slicing import Slice
from simulator.inputs.trace_files import TraceOptions
from simulator.policies.policy import Policy
from simulator.results.figures import RunCost
from tests.simulator.results.small_runs import asked_at_random, run_of

SETTINGS = SimulationSettings()
RUN = run_of(asked_at_random(np.random.default_rng(1), 20, load=1.2, gpus=16, greatest=8))


def key(inputs: SimulationInputs, policy: Policy = FIFO, settings: SimulationSettings = SETTINGS, seed: int = 1) -> str:
    found = key_of_run(inputs, input_of_run(inputs, policy, seed), policy, settings, seed)
    assert found is not None
    return found


def test_whatever_changes_a_run_changes_its_key(trace: Path) -> None:
    source = InputSource(trace, FleetSource(gpus=128))
    inputs = read_inputs(source)
    cluster = inputs.fleet.regions[0].clusters[0].cluster
    loans = trace.with_name("loans.csv")
    loans.write_text(f"t_s,cluster,machines\n0,{cluster},2\n")
    others = [
        replace(source, fleet=FleetSource(gpus=136)),
        replace(source, fleet=FleetSource(gpus=128, gpu_model="A100")),
        replace(source, options=TraceOptions(gpus_only=True)),
        replace(source, window=Slice(until_s=7200)),
        replace(source, assign_regions=True),
        replace(source, synthesize_tables=True),
        replace(source, loans=loans),
    ]
    keys = [
        key(inputs),
        key(inputs, MAST),
        key(inputs, seed=2),
        key(inputs, settings=SimulationSettings(scan_period_s=1.0)),
    ]
    keys += [key(read_inputs(other)) for other in others]
    trace.write_bytes(trace.read_bytes() + b"last,t1,99999,1,1\n")
    keys.append(key(read_inputs(source)))
    assert len(set(keys)) == len(keys)
    assert key(inputs) == keys[0]


def test_the_name_of_the_trace_does_not_matter(trace: Path) -> None:
    source = InputSource(trace, FleetSource(gpus=128))
    first = key(read_inputs(source))
    assert key(read_inputs(replace(source, trace=trace.rename(trace.with_name("renamed.csv"))))) == first


def test_policies_of_other_packages_are_not_kept(trace: Path) -> None:
    inputs = read_inputs(InputSource(trace, FleetSource(gpus=128)))
    theirs = replace(FIFO, name="theirs")
    assert key_of_run(inputs, input_of_run(inputs, theirs, 1), theirs, SETTINGS, 1) is None


def test_traces_from_pipes_are_not_kept(trace: Path) -> None:
    inputs = replace(read_inputs(InputSource(trace, FleetSource(gpus=128))), trace_digest=None)
    assert key_of_run(inputs, input_of_run(inputs, FIFO, 1), FIFO, SETTINGS, 1) is None


def test_beyond_the_limit_the_least_used_go(tmp_path: Path) -> None:
    cache = SimulationCache(tmp_path / "runs")
    for name in ("a", "b", "c"):
        cache.keep(name, RUN, RunCost(0.5, 100.0))
    size = (cache.folder / "a.npz").stat().st_size
    for age, name in enumerate(("c", "b", "a")):
        os.utime(cache.folder / f"{name}.npz", (1_000 + age, 1_000 + age))
    found = cache.find("c")
    assert found is not None
    assert found.cost == RunCost(0.5, 100.0)
    SimulationCache(cache.folder, greatest_bytes=round(3.5 * size)).keep("d", RUN, RunCost(0.5, 100.0))
    assert sorted(file.stem for file in cache.folder.iterdir()) == ["a", "c", "d"]
    SimulationCache(cache.folder, greatest_bytes=1).keep("e", RUN, RunCost(0.5, 100.0))
    assert [file.stem for file in cache.folder.iterdir()] == ["e"]
    assert cache.find("nothing") is None


def test_the_folder_is_the_one_of_the_environment() -> None:
    assert default_folder({"TOPMAST_HOME": "/somewhere", "XDG_CACHE_HOME": "/caches"}) == Path(
        "/somewhere/cache/simulations"
    )
    assert default_folder({}) == Path.home() / ".topmast" / "cache" / "simulations"
    assert len(code_digest()) == 64
