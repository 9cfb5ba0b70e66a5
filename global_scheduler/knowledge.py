"""What ordering and level policies are given: what a live service knows, and what only an oracle knows.

The two are separate types, so that nothing of the second can reach a service by accident. A policy says which it
needs; one that needs the oracle works in a service only on estimates, each of which says where it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Knowledge(Enum):
    """What a policy must know."""

    LIVE = "live"
    """Nothing but `KnownWork`."""
    ORACLE = "oracle"
    """`OracleWork`, or estimates in its place."""


class EstimateSource(IntEnum):
    """Where an estimate comes from, the most trustworthy first."""

    DECLARED = 0
    """The workload itself says how long it runs."""
    NAME_HISTORY = 1
    """The mean of the tenant's completed workloads of the same name."""
    TENANT_HISTORY = 2
    """The mean of all the tenant's completed workloads."""
    ASSUMED = 3
    """The settings, for lack of anything else."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """How long workloads are expected to run on; one element per workload in each array."""

    remaining_s: Floats
    """When it came into the queue, or when its attempt started."""
    source: NDArray[np.int8]
    """EstimateSource."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownWork:
    """What a live service knows; one element per workload in each array."""

    gpus: Floats
    """Of all base tasks together; CPUs do not count."""
    submitted_s: Floats
    queued_since_s: Floats
    """Since when it waits, or waited: its submission, or the end of its last attempt."""
    attained_gpu_s: Floats
    """GPU-seconds received in earlier attempts."""
    started_s: Floats
    """When its present attempt started to work; not a number while it waits, or is being set up."""
    estimates: Estimates | None = None
    """None: the settings do not want any."""

    def __len__(self) -> int:
        return len(self.submitted_s)

    def rows(self, chosen: NDArray[np.bool_]) -> KnownWork:
        """Of these workloads only."""
        estimates = self.estimates
        return KnownWork(
            self.gpus[chosen],
            self.submitted_s[chosen],
            self.queued_since_s[chosen],
            self.attained_gpu_s[chosen],
            self.started_s[chosen],
            None if estimates is None else Estimates(estimates.remaining_s[chosen], estimates.source[chosen]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class OracleWork:
    """What only a simulation knows; one element per workload in each array."""

    remaining_s: Floats
    """Run time to the end on what was asked for, when it came into the queue or when its attempt started."""

    def rows(self, chosen: NDArray[np.bool_]) -> OracleWork:
        """Of these workloads only."""
        return OracleWork(self.remaining_s[chosen])


class OracleNeeded(Exception):
    """A policy asks how long workloads will run, and there is neither an oracle nor an estimate."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        super().__init__(f"{policy} needs to know how long workloads will run, which only a simulation knows")


@dataclass(frozen=True, slots=True, eq=False)
class PolicyView:
    """What a policy looks at: workloads that wait, or attempts that run, at one moment."""

    known: KnownWork
    now: float
    oracle: OracleWork | None = None
    """None in a service."""

    def __len__(self) -> int:
        return len(self.known)

    def remaining_s(self, policy: str) -> Floats:
        """The oracle's answer, else the estimates; raises OracleNeeded, on behalf of the policy, without both."""
        if self.oracle is not None:
            return self.oracle.remaining_s
        if self.known.estimates is not None:
            return self.known.estimates.remaining_s
        raise OracleNeeded(policy)

    def rows(self, chosen: NDArray[np.bool_]) -> PolicyView:
        """Of these workloads only."""
        return PolicyView(self.known.rows(chosen), self.now, None if self.oracle is None else self.oracle.rows(chosen))
