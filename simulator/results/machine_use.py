"""How much of some of the machines was held: training machines beside those on loan (Lyra §7.2)."""

from __future__ import annotations

import numpy as np

from simulator.results.capacity import reserved_levels
from simulator.results.run_record import Flags, RunRecord


def allocation_rate_of(record: RunRecord, machines: Flags, from_s: float, until_s: float) -> float:
    """GPU-seconds held of what these machines could give while they took work, from one time to another.

    `machines`: [machine of the record's table]. Not a number where they took none.
    """
    levels = reserved_levels(record)
    following = np.append(levels.times[1:], levels.times[-1:])
    ends = np.append(levels.machine[1:] != levels.machine[:-1], True)[: len(levels.machine)]
    spans = np.clip(following, from_s, until_s) - np.clip(levels.times, from_s, until_s)
    gpus = np.minimum(levels.gpus, record.machines.gpus[levels.machine])
    here = machines[levels.machine] & ~ends
    held = float((np.maximum(spans, 0.0) * gpus)[here].sum())
    available = float(record.machines.gpus[machines].sum()) * (until_s - from_s)
    for machine, down_s, up_s in record.machine_down:
        if machines[machine]:
            lost_s = min(up_s, until_s) - max(down_s, from_s)
            available -= max(0.0, lost_s) * int(record.machines.gpus[machine])
    return held / available if available > 0 else float("nan")
