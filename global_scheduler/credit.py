"""The credit of a pending workload: MAST §4.2, Expressions 10 and 11.

    credit(L) = w_workload_age * min(L.age, C_age_cap)                                                        (10)
              + w_fair_share * (1 - window_avg(L.tenant.resources_used) / window_avg(all_tenants.resource_used)) (11)

What the paper leaves open is decided here:

* Resources used are one number: GPUs, plus CPUs at `gpus_per_cpu`, held on average over the window, divided by
  the tenant's fair-share weight (a tenant of weight 2 is entitled to twice as much).
* What all tenants used is their sum, as the expression is published: the ratio is the tenant's share of all use.
  `FairShare.RATIO_TO_MEAN` takes the mean per tenant in its place: a tenant that used as much as the average has a
  fair-share term of 0, whatever the number of tenants. (With the sum, 500 tenants all have about the whole weight.)
* The mean is over the tenants that have a quota or used something. Counting those with a quota even when they are idle
  keeps credit continuous: nothing jumps when an idle tenant starts its first small job. Guests without quota and
  without usage do not count, so that listing them costs the others nothing.
* No tenant used anything: the term is `w_fair_share` for all, as it is for a tenant that used nothing.
* Age and the usage ratio are quantised, so that most credits are the same in the next pass and need not be written
  again; the ratio to the mean is, from which the share of all follows: a quantum of the share itself would make the
  shares of hundreds of tenants equal. Two workloads of a tenant within one quantum of age have equal credit, and the submit time orders
  them: the very order that their ages would have given.

Invariant: within a tenant, credit never grows with a later submit time. The quota pass relies on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kernels.compiled import compiled_beside_others

_SECONDS_PER_HOUR = 3600.0


class FairShare(StrEnum):
    """What a tenant's use is compared with in Expression 11."""

    SHARE_OF_ALL = "share_of_all"
    """With what all tenants used together, as published: the ratio is from 0 to 1."""
    RATIO_TO_MEAN = "ratio_to_mean"
    """With what a tenant used on average: the ratio is 1 for it, and has no bound."""


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Weights and constants of Expressions 10 and 11. With the defaults a credit of 1 is worth one hour of waiting."""

    age_weight_per_s: float = 1.0 / _SECONDS_PER_HOUR
    """w_workload_age, per second of age."""
    age_cap_s: float = 24.0 * _SECONDS_PER_HOUR
    """C_age_cap."""
    fairness_weight: float = 6.0
    """w_fair_share."""
    fair_share: FairShare = FairShare.SHARE_OF_ALL
    """What all_tenants.resource_used is."""
    usage_window_s: float = 24.0 * _SECONDS_PER_HOUR
    """The window of window_avg: the usage is averaged over these last seconds."""
    gpus_per_cpu: float = 0.01
    """How much of a GPU one CPU counts in resources used. About what it costs: a GPU is worth a hundred CPUs."""
    age_resolution_s: float = 60.0
    """The quantum of age; 0: exact."""
    fair_share_resolution: float = 0.01
    """The quantum of the ratio to the mean use in Expression 11; 0: exact."""

    def __post_init__(self) -> None:
        for name in ("age_weight_per_s", "age_cap_s", "fairness_weight", "gpus_per_cpu", "age_resolution_s"):
            _require_not_negative(name, getattr(self, name))
        _require_not_negative("fair_share_resolution", self.fair_share_resolution)
        _require_not_negative("usage_window_s", self.usage_window_s)
        if self.usage_window_s == 0.0:
            raise ValueError("usage_window_s must be more than 0 seconds")


def fair_share_terms(
    used_gpus: NDArray[np.float64],
    used_cpus: NDArray[np.float64],
    fair_share_weight: NDArray[np.float64],
    has_quota: NDArray[np.bool_],
    settings: CreditSettings,
) -> NDArray[np.float64]:
    """Expression 11 for each tenant, weighted; one element per tenant in each array.

    `used_gpus` and `used_cpus` are averages over the window; weights are more than 0.
    """
    weighted_use = (used_gpus + settings.gpus_per_cpu * used_cpus) / fair_share_weight
    counted = weighted_use[has_quota | (weighted_use > 0.0)]
    average = math.fsum(counted.tolist()) / counted.size if counted.size else 0.0
    ratio = weighted_use / average if average > 0.0 else np.zeros_like(weighted_use)
    if settings.fair_share_resolution > 0.0:
        ratio = np.rint(ratio / settings.fair_share_resolution) * settings.fair_share_resolution
    if settings.fair_share is FairShare.SHARE_OF_ALL and counted.size:
        ratio = ratio / counted.size
    terms: NDArray[np.float64] = settings.fairness_weight * (1.0 - ratio)
    return terms


def credits_of(
    submitted_s: NDArray[np.float64],
    tenant: NDArray[np.int32],
    fair_share: NDArray[np.float64],
    now: float,
    settings: CreditSettings,
) -> NDArray[np.float64]:
    """Expression 10 for each workload, weighted, and the term of its tenant (`fair_share_terms`). What was submitted after
    `now` (clocks differ) has age 0."""
    credit = np.empty(len(submitted_s))
    _fill_credits(
        submitted_s,
        tenant,
        fair_share,
        float(now),
        float(settings.age_cap_s),
        float(settings.age_resolution_s),
        float(settings.age_weight_per_s),
        credit,
    )
    return credit


@compiled_beside_others
def _fill_credits(
    submitted_s: NDArray[np.float64],
    tenant: NDArray[np.int32],
    fair_share: NDArray[np.float64],
    now: float,
    age_cap_s: float,
    resolution_s: float,
    weight: float,
    credit: NDArray[np.float64],
) -> None:
    weight_of_quantum = resolution_s * weight
    for row in range(credit.size):
        age_s = min(max(now - submitted_s[row], 0.0), age_cap_s)
        if resolution_s > 0.0:
            credit[row] = np.floor(age_s / resolution_s) * weight_of_quantum + fair_share[tenant[row]]
        else:
            credit[row] = age_s * weight + fair_share[tenant[row]]


def _require_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise ValueError(f"{name} must be a finite number, 0 or more, not {value}")
