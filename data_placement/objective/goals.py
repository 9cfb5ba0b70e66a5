"""What a placement is to achieve: the weights of the three costs, and which limits are hard (MAST §3.2, §3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class School(StrEnum):
    """How a resource is shared out over regions (MAST §3.2)."""

    HARD_QUOTA = "hard_quota"
    """Demand must stay below supply in every region. What exceeds it at the start may not grow."""
    HARD_BALANCE = "hard_balance"
    """No region's overload may grow by a move; within supply everything is free."""
    SOFT_BALANCE = "soft_balance"
    """No limit: deviating from the mean ratio of demand to supply costs."""

    @property
    def limits(self) -> bool:
        """Whether it forbids moves."""
        return self is not School.SOFT_BALANCE


@dataclass(frozen=True, slots=True)
class Goals:
    """The weights of Fig. 4 and its limits.

    Expression 1 is counted as a share of all bytes that jobs read, so that weights mean the same in every warehouse.
    """

    cross_region_reads: float = 1.0
    """w1: for tables that are read across regions (Expression 1)."""
    gpu_balance: float = 10.0
    """w2: for GPU demand that is spread otherwise than supply (Expression 2)."""
    storage_balance: float = 1.0
    """w3: for storage that is filled otherwise than it is spread (Expression 3)."""
    priority_weights: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    """w_P by priority; others have 1 for the highest priority of the warehouse and half of the one above for each further."""
    high_priority: int | None = None
    """The lowest priority that counts as high in Expression 6; the warehouse's highest one when None."""
    penalise_overload: bool = True
    """Expression 8: an overloaded region costs up to twice as much. Off: too much and too little cost the same."""
    overload_unit_gpu_hours: float = 1.0
    """What one step on the scale of Expression 8's sigmoid is; the paper's formula has 1."""
    gpu: School = School.SOFT_BALANCE
    storage: School = School.HARD_QUOTA
    """Beside the cost of `storage_balance`, which is 0 for the quota alone."""
    cpu: School = School.HARD_QUOTA
    home_training_share: float = 0.93
    """Expression 6: this part of the GPU hours of high-priority training is to be trained at home. A share below it may not sink."""

    def __post_init__(self) -> None:
        """Raises ValueError naming the field for a weight that is negative or no number, and for a share out of [0, 1]."""
        for name in ("cross_region_reads", "gpu_balance", "storage_balance"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be 0 or greater, not {getattr(self, name)}")
        for priority, weight in self.priority_weights.items():
            if not 0.0 <= weight < float("inf"):
                raise ValueError(f"priority_weights.{priority} must be 0 or greater, not {weight}")
        if not 0.0 < self.overload_unit_gpu_hours < float("inf"):
            raise ValueError(f"overload_unit_gpu_hours must be greater than 0, not {self.overload_unit_gpu_hours}")
        if not 0.0 <= self.home_training_share <= 1.0:
            raise ValueError(f"home_training_share must be between 0 and 1, not {self.home_training_share}")

    def weight_of(self, priority: int, rank: int) -> float:
        """w_P of a priority that is the rank-th highest of the warehouse, from 0."""
        return self.priority_weights.get(priority, 0.5**rank)


V1 = Goals(storage_balance=0.0, penalise_overload=False)
"""The paper's version of 2022 (§5.6): overload costs no more than its opposite, storage has its quota alone."""
V2 = Goals()
"""The paper's present version: overload costs more, storage is balanced too."""
PRESETS: Mapping[str, Goals] = MappingProxyType({"v1": V1, "v2": V2})
"""By name. The paper's first version (V0) moves nothing: it is the placement before any plan."""
