"""A machine on its way from one cluster of its region to another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from domain.identifiers import ClusterId, MachineId


class MoveState(StrEnum):
    """How far a machine is."""

    WAITING = "waiting"
    """It is to move, and takes work as ever: others go first."""
    DRAINING = "draining"
    """It takes no new work; what runs on it may go on until the deadline."""
    RETURNING = "returning"
    """It is not to move any more, and takes work again where it is as soon as it can."""


@dataclass(frozen=True, slots=True)
class MachineMovement:
    """A machine, and where it goes."""

    machine: MachineId
    from_cluster: ClusterId
    to_cluster: ClusterId
    state: MoveState
    decided_s: float
    deadline_s: float | None = None
    """From then on what is still on it has to leave; None: it does not drain yet."""
