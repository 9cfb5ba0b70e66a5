"""One run, measured: real time, memory, and the laws that every run must keep."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from services.simulation.cache import SimulationCache, key_of_run
from services.simulation.inputs import SimulationInputs, input_of_run
from services.simulation.memory import forget_peak_memory, peak_memory_mib
from simulator.engine.event_log import EventSink
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import ProgressWatcher, RunProgress, simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.results.conservation import violated_laws
from simulator.results.figures import RunCost
from simulator.results.run_record import RunRecord


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that was made, or found in the cache."""

    record: RunRecord
    cost: RunCost
    """What it took when it was made."""
    laws: tuple[str, ...]
    """A sentence for each law of conservation that it violates."""
    from_cache: bool
    not_kept: str = ""
    """Why it could not be kept in the cache, where it should have been."""


def run_once(
    inputs: SimulationInputs,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    cache: SimulationCache | None = None,
    watcher: ProgressWatcher | None = None,
) -> FinishedRun:
    """The run, from the cache where it has it. One that the watcher broke off is not kept."""
    given = input_of_run(inputs, policy, seed)
    key = key_of_run(inputs, given, policy, settings, seed) if cache is not None else None
    if cache is not None and key is not None:
        found = cache.find(key)
        if found is not None:
            record = replace(found.record, trace=given.trace)
            return FinishedRun(record, found.cost, tuple(violated_laws(record)), from_cache=True)
    stopped = False

    def watch(progress: RunProgress) -> bool:
        nonlocal stopped
        stopped = watcher is not None and not watcher(progress)
        return not stopped

    finished = measured_run(given, policy, settings, seed, watcher=watch if watcher is not None else None)
    if cache is not None and key is not None and not stopped:
        try:
            cache.keep(key, finished.record, finished.cost)
        except OSError as error:
            # A full or read-only disk: the run itself is as good as any.
            return replace(finished, not_kept=f"{cache.folder}: {error.strerror or error}")
    return finished


def measured_run(
    given: SimulationInput,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    sink: EventSink | None = None,
    watcher: ProgressWatcher | None = None,
) -> FinishedRun:
    """The run, made now. Its time is that of the simulation alone, with what sink and watcher do."""
    forget_peak_memory()
    begun_s = time.perf_counter()
    record = simulate(given, policy, settings, seed, sink=sink, watcher=watcher)
    cost = RunCost(time.perf_counter() - begun_s, peak_memory_mib())
    return FinishedRun(record, cost, tuple(violated_laws(record)), from_cache=False)
