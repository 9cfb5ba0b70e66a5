"""What ordering and level policies are given: what a live service knows, and what only an oracle knows.

The two are separate types, so that nothing of the second can reach a service by accident. A policy says which it
needs; one that needs the oracle works in a service only on estimates, each of which says where it comes from.
`Known` and `PolicyInput` are what a policy is written for: many workloads as columns, or one (`arithmetic`).
`KnownColumns`, `OracleWork` and `PolicyView` are the columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from global_scheduler.arithmetic import COLUMNS, Arithmetic, Floats, Numbers
from global_scheduler.service_distribution import ServiceInForce


class Knowledge(Enum):
    """What a policy must know."""

    LIVE = "live"
    """Nothing but `KnownWork`."""
    COMPLETED = "completed"
    """`KnownWork`, and how much service workloads received that have completed."""
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


Read = TypeVar("Read", float, Floats, covariant=True)
"""`Numbers` that are only read."""


class Known(Protocol, Generic[Read]):
    """What a live service knows of one workload, or of many."""

    @property
    def gpus(self) -> Read:
        """Of all base tasks together; CPUs do not count."""
        ...

    @property
    def submitted_s(self) -> Read: ...

    @property
    def queued_since_s(self) -> Read:
        """Since when it waits, or waited: its submission, or the end of its last attempt."""
        ...

    @property
    def attained_gpu_s(self) -> Read:
        """GPU-seconds received in earlier attempts since its last promotion, and what makes up for it if its present
        attempt, which counts as holding `gpus` since `started_s`, held more or fewer before it was resized: then it may
        be less than 0."""
        ...

    @property
    def attained_s(self) -> Read:
        """Seconds that it ran in earlier attempts since its last promotion; of what waits only."""
        ...

    @property
    def first_started_s(self) -> Read:
        """When the first of its attempts started to work, infinity: none did yet; of what waits only."""
        ...

    @property
    def started_s(self) -> Read:
        """When its present attempt started to work; not a number while it waits, or is being set up."""
        ...


class PolicyInput(Protocol, Generic[Numbers]):
    """What a policy looks at, at one moment: one workload that waits or runs, or many."""

    @property
    def known(self) -> Known[Numbers]: ...

    @property
    def now(self) -> float: ...

    @property
    def arithmetic(self) -> Arithmetic[Numbers]: ...

    def remaining_s(self, policy: str) -> Numbers:
        """The oracle's answer, else the estimate; raises OracleNeeded, on behalf of the policy, without both."""
        ...

    def constant(self, number: float) -> Numbers:
        """The same number for all."""
        ...

    def gittins_index(self, attained_gpu_s: Numbers, quantum_gpu_s: Numbers) -> Numbers | None:
        """The Gittins index of what has attained so much, at that quantum of service; infinity is a quantum.

        By the service of completed workloads, in GPU-seconds. None: none has completed yet.
        """
        ...


@dataclass(slots=True, eq=False)
class Estimates:
    """How long workloads are expected to run on; one element per workload in each array."""

    remaining_s: Floats
    """When it came into the queue, or when its attempt started."""
    source: NDArray[np.int8]
    """EstimateSource."""


class KnownColumns(Known[Floats], Protocol):
    """`Known` of many workloads; one element per workload in each array."""

    @property
    def estimates(self) -> Estimates | None:
        """None: the settings do not want any."""
        ...

    def __len__(self) -> int: ...

    def rows(self, chosen: NDArray[np.bool_]) -> KnownColumns:
        """Of these workloads only."""
        ...


@dataclass(slots=True, eq=False)
class KnownWork:
    """`KnownColumns` as arrays."""

    gpus: Floats
    submitted_s: Floats
    queued_since_s: Floats
    attained_gpu_s: Floats
    started_s: Floats
    attained_s: Floats
    first_started_s: Floats
    estimates: Estimates | None = None

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
            self.attained_s[chosen],
            self.first_started_s[chosen],
            None if estimates is None else Estimates(estimates.remaining_s[chosen], estimates.source[chosen]),
        )


@dataclass(slots=True, eq=False)
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


@dataclass(slots=True, eq=False)
class PolicyView:
    """Workloads that wait, or attempts that run, at one moment; one element per workload in each array."""

    known: KnownColumns
    now: float
    oracle: OracleWork | None = None
    """None in a service."""
    service: ServiceInForce | None = None
    """None: no workload has completed yet."""

    def __len__(self) -> int:
        return len(self.known)

    @property
    def arithmetic(self) -> Arithmetic[Floats]:
        """That of columns."""
        return COLUMNS

    def constant(self, number: float) -> Floats:
        """The same number for each."""
        return np.full(len(self.known), number)

    def remaining_s(self, policy: str) -> Floats:
        """The oracle's answer, else the estimates; raises OracleNeeded, on behalf of the policy, without both."""
        if self.oracle is not None:
            return self.oracle.remaining_s
        if self.known.estimates is not None:
            return self.known.estimates.remaining_s
        raise OracleNeeded(policy)

    def gittins_index(self, attained_gpu_s: Floats, quantum_gpu_s: Floats) -> Floats | None:
        """By the distributions in force for each workload; None without any."""
        return None if self.service is None else self.service.index(attained_gpu_s, quantum_gpu_s)

    def rows(self, chosen: NDArray[np.bool_]) -> PolicyView:
        """Of these workloads only."""
        oracle = None if self.oracle is None else self.oracle.rows(chosen)
        return PolicyView(
            self.known.rows(chosen), self.now, oracle, None if self.service is None else self.service.rows(chosen)
        )
