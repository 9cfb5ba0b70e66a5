"""How long iterations took, by what ran and how: what PACKLIMIT is learnt from (Tiresias §3.3.2)."""

from __future__ import annotations

from typing import NamedTuple

from domain.identifiers import GpuModel, JobName, TenantId


class RanOn(NamedTuple):
    """What ran, and how."""

    tenant: TenantId
    name: str
    """Of the workload; in simulations the model that it trains, where its trace says it."""
    job: JobName
    tasks: int
    gpus: int
    """Of each task."""
    gpu_model: GpuModel
    spread: bool
    """On more machines than it needs."""


class Sums(NamedTuple):
    """Of the attempts that ran like that."""

    skew: float
    """Of the model, as known last."""
    attempts: int
    total_s: float
    """The sum over the attempts of their mean time of an iteration, or of anything else that is as much slower."""
