"""Runs that were made before, found by the content of everything that they depend on.

A key is a hash of the trace's bytes and how they are read, of fleet, tenants, policy, settings and seed, and of the
source code of everything that decides; so nothing is ever found that would come out differently today. What installed
packages bring as policies is not kept: their code is not known here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import numba
import numpy as np

from domain.identifiers import TenantId
from formats.problems import FormatError
from global_scheduler.level_parameters import given_parameters
from services.runtime.home import HomeLayout, default_home
from services.simulation.inputs import SimulationInputs
from simulator.baselines import BASELINES
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.results.figures import RunCost
from simulator.results.record_file import load_record, save_record
from simulator.results.run_record import RunRecord

GREATEST_BYTES = 2 * 2**30
"""Of all runs that are kept together; beyond it those go that were not asked for longest."""
DECIDING_PACKAGES = (
    "cluster_manager",
    "data_placement",
    "domain",
    "formats",
    "global_scheduler",
    "kernels",
    "regional_scheduler",
    "simulator",
)


def default_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """In TOPMAST_HOME."""
    return HomeLayout(default_home(environment)).simulations


@dataclass(frozen=True, slots=True)
class CachedRun:
    record: RunRecord
    cost: RunCost


class SimulationCache:
    """Runs as files of a folder, one for each key. May be used by several processes at once."""

    def __init__(self, folder: Path, greatest_bytes: int = GREATEST_BYTES) -> None:
        self.folder = folder
        self._greatest_bytes = greatest_bytes

    def find(self, key: str) -> CachedRun | None:
        """The run of that key; None when there is none, or what is there is damaged."""
        file = self._file(key)
        try:
            saved = load_record(file)
            cost = RunCost(saved.notes["wall_s"], saved.notes["peak_rss_mib"])
            os.utime(file)
        except (FormatError, KeyError, OSError):
            # Never there, just removed by another process, or broken: it is made anew.
            return None
        return CachedRun(saved.record, cost)

    def keep(self, key: str, record: RunRecord, cost: RunCost) -> None:
        """Stores a run, whole or not at all, and removes what is too much by now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        part = self.folder / f".{key}.{os.getpid()}.part"
        try:
            save_record(part, record, {"wall_s": cost.wall_s, "peak_rss_mib": cost.peak_rss_mib})
            part.replace(self._file(key))
        finally:
            part.unlink(missing_ok=True)
        self._remove_oldest(self._file(key))

    def clear(self) -> int:
        """Removes all runs; how many there were."""
        runs = self._runs()
        for run in runs:
            run.unlink(missing_ok=True)
        return len(runs)

    def _file(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def _runs(self) -> list[Path]:
        return sorted(self.folder.glob("*.npz")) if self.folder.is_dir() else []

    def _remove_oldest(self, newest: Path) -> None:
        sizes: list[tuple[float, str, int]] = []
        for run in self._runs():
            try:
                status = run.stat()
            except FileNotFoundError:
                # Another process was quicker.
                continue
            sizes.append((status.st_mtime, str(run), status.st_size))
        total = sum(size for _, _, size in sizes)
        for _, name, size in sorted(sizes):
            if total <= self._greatest_bytes:
                return
            if name != str(newest):
                Path(name).unlink(missing_ok=True)
                total -= size


def key_of_run(
    inputs: SimulationInputs,
    given: SimulationInput,
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    alone: TenantId | None = None,
) -> str | None:
    """The key of a run; None for one that cannot be kept: a trace from a pipe, a policy from another package.

    `alone`: the tenant whose workloads alone are run.
    """
    if inputs.trace_digest is None or not any(policy is known for known in BASELINES):
        return None
    source = inputs.source
    options = source.options
    parts = {
        "code": code_digest(),
        "trace": inputs.trace_digest,
        "read": [options.format, options.default_tenant, options.gpus_only, options.job_table is not None],
        "window": repr(source.window),
        "drawn": [source.assign_regions, source.synthesize_tables],
        # Synthesized tables are drawn from the rows and the seed, which are here.
        "fleet": _digest(repr(given.fleet)),
        "shared": [source.sharing.with_quotas, alone],
        "tables": _digest(repr(inputs.tables)),
        "tenants": _digest(repr(given.tenants)),
        "begins": [source.snapshot is not None, source.trace is not None, source.default_duration_s],
        "loans": _digest(repr(given.loans)),
        "table_moves": _digest(repr(given.table_moves)),
        "policy": policy.name,
        "settings": settings.model_dump(mode="json"),
        # A field that is not set is not one that is set to the default: then it is as the policy has it.
        "eviction": repr(settings.eviction.rule(policy.eviction)),
        "levels": repr(given_parameters(settings.levels)),
        "samples": _digest(repr(given.samples_gpu_s)),
        "profiles": _digest(repr(sorted(given.profiles.items()))),
        "models": str(source.sensitivity.models),
        "seed": seed,
    }
    return _digest(json.dumps(parts, sort_keys=True))


@once
def code_digest() -> str:
    """Of the source files of all packages that decide, and of the libraries that compute."""
    root = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(f"numpy {np.__version__} numba {numba.__version__}".encode())
    for package in DECIDING_PACKAGES:
        for file in sorted((root / package).rglob("*.py")):
            digest.update(f"\n{file.relative_to(root).as_posix()}\n".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
