"""Traces derived as in Synergy §5.1: run times over three decades, Poisson arrivals, GPUs as in Philly."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from domain.identifiers import TenantId, WorkloadId
from formats.trace import TraceRow
from simulator.inputs.models import ModelSplit, assign_models

TENANT = TenantId("synergy")
LONG_SHARE = 0.2
GPUS_OF_MULTI = ((1, 0.942), (2, 0.009), (4, 0.022), (8, 0.024), (16, 0.003))
"""GPUs and the share of the jobs that ask for so many, as in the authors' own multi-GPU list, which is drawn from Philly."""


def derived_rows(
    count: int, jobs_per_hour: float, split: ModelSplit, known: Collection[str], *, multi: bool, seed: int
) -> tuple[TraceRow, ...]:
    """`count` jobs. Run times with proportional shares are 10^x minutes, x even in [1.5, 3] for 80 % and in [3, 4] for the others.

    The same seed gives the same jobs in the same order at every load: only the time between them is another.
    """
    rng = np.random.default_rng(seed)
    waits_s = rng.exponential(3600.0, count) / jobs_per_hour
    is_long = rng.random(count) < LONG_SHARE
    exponent = np.where(is_long, rng.uniform(3.0, 4.0, count), rng.uniform(1.5, 3.0, count))
    drawn_gpus = rng.choice([gpus for gpus, _ in GPUS_OF_MULTI], count, p=[share for _, share in GPUS_OF_MULTI])
    gpus = drawn_gpus if multi else np.ones(count, np.int64)
    rows = [
        TraceRow(WorkloadId(f"{number:06}"), TENANT, submit_s, duration_s, int(asked))
        for number, (submit_s, duration_s, asked) in enumerate(
            zip(np.cumsum(waits_s).tolist(), (60.0 * 10.0**exponent).tolist(), gpus.tolist(), strict=True)
        )
    ]
    return assign_models(rows, split, known, rng)
