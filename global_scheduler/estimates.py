"""How long workloads will run on, as far as a service can tell: for policies that only an oracle could serve otherwise.

The best source that there is for a workload counts: what it declares itself, less what its last checkpoint keeps; else
the mean run time of its tenant's completed workloads of the same name, then of all its tenant's completed workloads;
else what the settings assume; each of the latter less the time that it has run.
"""

from __future__ import annotations

import numpy as np

from global_scheduler.arithmetic import Floats
from global_scheduler.knowledge import Estimates, EstimateSource


def estimates_from(
    declared_s: Floats,
    kept_s: Floats,
    same_name_s: Floats,
    same_tenant_s: Floats,
    run_s: Floats,
    *,
    assumed_run_s: float,
) -> Estimates:
    """One element per workload; what is not known is not a number.

    `declared_s` is the run time that it declares, `kept_s` its progress in seconds of that, `same_name_s` and
    `same_tenant_s` are the means of the past, `run_s` is how long it has run in earlier attempts.
    """
    remaining_s = np.full(len(run_s), assumed_run_s) - run_s
    source = np.full(len(run_s), EstimateSource.ASSUMED, np.int8)
    better = (
        (EstimateSource.TENANT_HISTORY, same_tenant_s - run_s),
        (EstimateSource.NAME_HISTORY, same_name_s - run_s),
        (EstimateSource.DECLARED, declared_s - kept_s),
    )
    for number, estimate_s in better:
        known = ~np.isnan(estimate_s)
        remaining_s[known] = estimate_s[known]
        source[known] = number
    return Estimates(np.maximum(remaining_s, 0.0), source)
