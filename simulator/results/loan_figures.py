"""What loans of inference clusters came to in a run: reclaims, what they cost, and how well the machines were used (Lyra §7.2, §7.3)."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np

from domain.events import JsonValue
from simulator.results.distribution import rate_or_null
from simulator.results.machine_use import allocation_rate_of
from simulator.results.run_record import AttemptEnd, RunRecord


@dataclass(frozen=True, slots=True)
class LoanFigures:
    """See docs/results-format.md for each. None where only the simulator counts it and the record is of a log."""

    inference_gpus: int
    reclaims: int | None
    reclaimed_machines: int | None
    reclaimed_without_evictions: int | None
    collateral_damage: float | None
    short_machines: int | None
    evicted: int
    preemption_ratio: float | None
    loaned_allocation_rate: float | None
    training_allocation_rate: float | None

    def as_json(self) -> dict[str, JsonValue]:
        """The object of docs/results-format.md."""
        return asdict(self)


def loan_figures_of(record: RunRecord) -> LoanFigures | None:
    """None for a run without inference clusters."""
    if not record.inference_machines:
        return None
    inference = np.zeros(len(record.machines.gpus), dtype=np.bool_)
    inference[list(record.inference_machines)] = True
    window, counts = (record.started_s, record.ended_s), record.counts
    evicted = int((record.attempts.end == AttemptEnd.RECLAIMED).sum())
    counted = counts.events > 0
    return LoanFigures(
        inference_gpus=int(record.machines.gpus[inference].sum()),
        reclaims=counts.reclaims if counted else None,
        reclaimed_machines=counts.reclaimed_machines if counted else None,
        reclaimed_without_evictions=counts.reclaimed_without_evictions if counted else None,
        collateral_damage=rate_or_null(counts.collateral_gpus, counts.reclaimed_gpus) if counted else None,
        short_machines=counts.short_machines if counted else None,
        evicted=evicted,
        preemption_ratio=rate_or_null(evicted, len(record.workloads)),
        loaned_allocation_rate=_number(allocation_rate_of(record, inference, *window)),
        training_allocation_rate=_number(allocation_rate_of(record, ~inference, *window)),
    )


def _number(rate: float) -> float | None:
    return None if math.isnan(rate) else rate
