"""What can go wrong in the inventory, each with the names and numbers that explain it."""

from __future__ import annotations

from domain.identifiers import MachineId
from domain.placement import AttemptKey


class InventoryError(Exception):
    """The inventory was asked for something it cannot do; it is unchanged."""


class UnknownMachine(InventoryError):
    """No cluster of the region has this machine (or another cluster than the one named has it)."""

    def __init__(self, machine: MachineId, problem: str) -> None:
        self.machine = machine
        super().__init__(f"machine {machine}: {problem}")


class UnexpectedHolding(InventoryError):
    """The attempt holds nothing here, or is held already."""

    def __init__(self, key: AttemptKey, problem: str) -> None:
        self.key = key
        super().__init__(f"attempt {key.attempt} of workload {key.workload}: {problem}")


class GrowsWhileLeaving(InventoryError):
    """An attempt that is being evicted would hold something new: what it has is promised to others."""

    def __init__(self, key: AttemptKey) -> None:
        self.key = key
        super().__init__(
            f"attempt {key.attempt} of workload {key.workload} is leaving: it cannot be given anything more"
        )


class OverCommitted(InventoryError):
    """A machine would hold more than it has, even after all that are leaving have left (I1)."""

    def __init__(self, machine: MachineId, resource: str, asked: int, available: int) -> None:
        self.machine = machine
        self.resource = resource
        self.asked = asked
        self.available = available
        super().__init__(
            f"machine {machine}: {asked} {resource} asked, {available} there once all that are leaving have left"
        )


class GpuTaken(InventoryError):
    """A GPU would be held twice, or does not exist."""

    def __init__(self, machine: MachineId, gpu_index: int, problem: str) -> None:
        self.machine = machine
        self.gpu_index = gpu_index
        super().__init__(f"machine {machine}: GPU {gpu_index} {problem}")


class InvariantBroken(Exception):
    """The inventory's arrays disagree with what is held: a defect of this program, never of its input."""
