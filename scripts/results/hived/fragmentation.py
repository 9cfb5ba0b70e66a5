"""How much of the cluster is broken up by guaranteed work (HiveD §5.2): machines that could not give all their GPUs."""

from __future__ import annotations

import numpy as np

from domain.events import JsonValue
from simulator.results.run_record import RunRecord

STEP_S = 3600.0


def fragmentation_of(record: RunRecord, from_s: float, until_s: float) -> dict[str, JsonValue]:
    """Sampled every hour: the shares of machines on which guaranteed work holds any GPU (the paper's level of
    fragmentation: they cannot give all their GPUs to guaranteed work), and some but not all of them.
    """
    attempts, shares, machines = record.attempts, record.shares, record.machines
    owner = np.repeat(np.arange(len(attempts)), np.diff(attempts.first_share))
    sure = attempts.guaranteed[owner]
    begin_s, machine, gpus = attempts.dispatched_s[owner][sure], shares.machine[sure], shares.gpus[sure]
    end_s = np.where(np.isnan(attempts.ended_s), record.ended_s, attempts.ended_s)[owner][sure]
    used: list[JsonValue] = []
    partly: list[JsonValue] = []
    for t_s in np.arange(from_s + STEP_S, until_s + 1.0, STEP_S).tolist():
        there = (begin_s <= t_s) & (t_s < end_s)
        held = np.bincount(machine[there], weights=gpus[there], minlength=len(machines.gpus))
        used.append(round(float((held > 0).mean()), 4))
        partly.append(round(float(((held > 0) & (held < machines.gpus)).mean()), 4))
    return {"used": used, "partly_used": partly}
