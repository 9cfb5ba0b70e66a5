"""Which workload is bound to which region from its submission on, and what that asks of each region."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from domain.fleet import Fleet
from domain.identifiers import ANY_GPU_MODEL, GpuModel
from simulator.engine.workloads import SimulatedWorkload
from simulator.policies.region_choice import LateBinding, RegionChoice, RegionLoads

Amounts = NDArray[np.int64]


class Bindings:
    """Asks the policy for a region when a workload comes, and keeps count until the workload has ended."""

    def __init__(self, fleet: Fleet, choice: RegionChoice, rng: np.random.Generator) -> None:
        self._choice = choice
        self._rng = rng
        self._supply: dict[GpuModel, Amounts] = {
            model: _gpus_of(fleet, model) for model in (ANY_GPU_MODEL, *fleet.gpu_models())
        }
        self._demand: dict[GpuModel, Amounts] = {}
        self._known: dict[GpuModel, Amounts] = self._demand
        """What is asked of regions, as far as the policy knows."""
        self._known_until_s = math.inf if choice.load_age_s == 0 else -math.inf
        """When that is to be made known anew."""
        self._bound: dict[int, tuple[int, GpuModel]] = {}

    def region_for(self, work: SimulatedWorkload, now: float) -> int | None:
        """The region that it is bound to from now on; None where the auctions decide."""
        if isinstance(self._choice, LateBinding):
            return None
        self._make_known(now)
        model = _model_of(work)
        region = self._choice.bind(work, work.eligible, self.loads(model), self._rng)
        if region is not None:
            if region not in work.eligible:
                problem = f"{self._choice.name} binds {work.workload.workload} to region {region}"
                raise ValueError(f"{problem}, which is not one of {list(work.eligible)}")
            self._bind(work, region, model)
        return region

    def keep(self, work: SimulatedWorkload, region: int, now: float) -> bool:
        """It runs there as the run begins: whether it is bound to that region, as the policy would have bound it."""
        if isinstance(self._choice, LateBinding):
            return False
        self._make_known(now)
        self._bind(work, region, _model_of(work))
        return True

    def region_of(self, work: SimulatedWorkload) -> int | None:
        """The region that it is bound to; None: to none."""
        bound = self._bound.get(work.index)
        return None if bound is None else bound[0]

    def _bind(self, work: SimulatedWorkload, region: int, model: GpuModel) -> None:
        self._demand.setdefault(model, self._nothing())[region] += work.base_gpus
        self._bound[work.index] = region, model

    def ended(self, work: SimulatedWorkload, now: float) -> None:
        """It asks for nothing any more."""
        bound = self._bound.pop(work.index, None)
        if bound is not None:
            self._make_known(now)
            region, model = bound
            self._demand[model][region] -= work.base_gpus

    def _make_known(self, now: float) -> None:
        """Keeps what was asked of regions at the last multiple of the age, before what happens now changes it."""
        if now >= self._known_until_s:
            self._known = {model: amounts.copy() for model, amounts in self._demand.items()}
            self._known_until_s = (now // self._choice.load_age_s + 1) * self._choice.load_age_s

    def loads(self, model: GpuModel) -> RegionLoads:
        """What regions have of a GPU model, and what is known to be asked of it there."""
        everything = self._supply[ANY_GPU_MODEL]
        if model == ANY_GPU_MODEL:
            return RegionLoads(everything, sum(self._known.values(), self._nothing()))
        supply = self._supply.get(model, self._nothing())
        # A workload that takes any model takes of each what there is of it.
        anything = self._known.get(ANY_GPU_MODEL, self._nothing()) * supply // np.maximum(everything, 1)
        return RegionLoads(supply, self._known.get(model, self._nothing()) + anything)

    def _nothing(self) -> Amounts:
        return np.zeros_like(self._supply[ANY_GPU_MODEL])


def _gpus_of(fleet: Fleet, model: GpuModel) -> Amounts:
    counts: Sequence[int] = [
        sum(machine.gpus for machine in region.machines() if model in (ANY_GPU_MODEL, machine.gpu_model))
        for region in fleet.regions
    ]
    return np.array(counts, np.int64)


def _model_of(work: SimulatedWorkload) -> GpuModel:
    """The model that its first job with GPUs asks for."""
    jobs = work.workload.specification.jobs
    return next((job.resources.gpu_model for job in jobs if job.resources.gpus), ANY_GPU_MODEL)
