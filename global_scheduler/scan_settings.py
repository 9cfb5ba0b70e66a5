"""How to scan."""

from __future__ import annotations

from dataclasses import dataclass

from domain.tenant import LOWEST_PRIORITY
from global_scheduler.credit import CreditSettings
from global_scheduler.ordering.policy import OrderingPolicy

DEFAULT_ORDERING = "credit"


@dataclass(frozen=True, slots=True)
class ScanSettings:
    """The credit's constants and, for each priority from 0 on, the name of its ordering policy (ordering.POLICIES)."""

    credit: CreditSettings = CreditSettings()
    ordering: tuple[str, ...] = (DEFAULT_ORDERING,) * (LOWEST_PRIORITY + 1)
    plugged_in: tuple[OrderingPolicy, ...] = ()
    """Further ordering policies, which `ordering` may name."""

    def __post_init__(self) -> None:
        if len(self.ordering) != LOWEST_PRIORITY + 1:
            raise ValueError(f"there must be {LOWEST_PRIORITY + 1} ordering policies, one per priority")
