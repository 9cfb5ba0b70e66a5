"""How to scan."""

from __future__ import annotations

from dataclasses import dataclass

from domain.service_scope import DistributionScope
from domain.tenant import LOWEST_PRIORITY
from global_scheduler.credit import CreditSettings
from global_scheduler.levels.policy import LevelPolicy
from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.ordering.policy import OrderingPolicy


@dataclass(frozen=True, slots=True)
class QueueRule:
    """How the workloads of one priority are ordered, and at which levels they are."""

    ordering: OrderingPolicy = CreditOrdering()
    levels: LevelPolicy | None = None
    """None: all are at level 0."""


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """The credit's constants and, for each priority from 0 on, the rule of its queue."""

    credit: CreditSettings = CreditSettings()
    rules: tuple[QueueRule, ...] = (QueueRule(),) * (LOWEST_PRIORITY + 1)
    distribution: DistributionScope = DistributionScope.GLOBAL
    samples_gpu_s: tuple[float, ...] = ()
    """Of service, to begin with: for orderings that go by completed workloads."""

    def __post_init__(self) -> None:
        if len(self.rules) != LOWEST_PRIORITY + 1:
            raise ValueError(f"there must be {LOWEST_PRIORITY + 1} rules, one per priority")
