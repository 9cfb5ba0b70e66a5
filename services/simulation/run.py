"""One run, measured: real time, memory, and the laws that every run must keep."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from domain.identifiers import TenantId
from services.simulation.cache import SimulationCache, key_of_run
from services.simulation.inputs import SimulationInputs, input_of_run
from services.simulation.memory import forget_peak_memory, peak_memory_mib
from services.simulation.sharing import policy_of_run
from simulator.engine.event_log import EventSink
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import ProgressWatcher, RunProgress, simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.private_clusters import private_inputs
from simulator.policies.policy import Policy
from simulator.results.conservation import violated_laws
from simulator.results.excess_waits import AgainstPrivate, against_private
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
    against_private: AgainstPrivate | None = None
    """Compared with private clusters, where that is asked for and nothing was broken off."""


def run_once(
    inputs: SimulationInputs,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    *,
    cache: SimulationCache | None = None,
    watcher: ProgressWatcher | None = None,
) -> FinishedRun:
    """The run, from the cache where it has it. One that the watcher broke off is not kept.

    Where that is asked for, private clusters are run after it, and kept too.
    """
    sharing = inputs.source.sharing
    runs = _Runs(inputs, policy, settings, seed, cache, watcher)
    given = input_of_run(inputs, policy_of_run(sharing, policy), seed)
    finished = runs.run(given)
    if not sharing.against_private:
        return finished
    alone = {tenant: runs.run(private, tenant) for tenant, private in private_inputs(given).items() if not runs.stopped}
    return finished if runs.stopped else compared(finished, alone)


def compared(finished: FinishedRun, alone: Mapping[TenantId, FinishedRun]) -> FinishedRun:
    """The run with what it comes to against those of tenants alone."""
    records = {str(tenant): run.record for tenant, run in alone.items()}
    return replace(finished, against_private=against_private(finished.record, records))


@dataclass(slots=True)
class _Runs:
    """The shared run and those of tenants alone have all of this in common."""

    inputs: SimulationInputs
    policy: Policy
    settings: SimulationSettings
    seed: int
    cache: SimulationCache | None
    watcher: ProgressWatcher | None
    stopped: bool = False
    """The watcher broke a run off."""

    def run(self, given: SimulationInput, alone: TenantId | None = None) -> FinishedRun:
        """From the cache, or made now."""
        cache, key = self.cache, None
        if cache is not None:
            key = key_of_run(self.inputs, given, self.policy, self.settings, self.seed, alone)
        if cache is not None and key is not None:
            found = cache.find(key)
            if found is not None:
                record = replace(found.record, trace=given.trace)
                return FinishedRun(record, found.cost, tuple(violated_laws(record)), from_cache=True)
        policy, watcher = policy_of_run(self.inputs.source.sharing, self.policy), self._watch
        finished = measured_run(
            given, policy, self.settings, self.seed, watcher=watcher if self.watcher is not None else None
        )
        if cache is not None and key is not None and not self.stopped:
            try:
                cache.keep(key, finished.record, finished.cost)
            except OSError as error:
                # A full or read-only disk: the run itself is as good as any.
                return replace(finished, not_kept=f"{cache.folder}: {error.strerror or error}")
        return finished

    def _watch(self, progress: RunProgress) -> bool:
        self.stopped = self.stopped or (self.watcher is not None and not self.watcher(progress))
        return not self.stopped


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
