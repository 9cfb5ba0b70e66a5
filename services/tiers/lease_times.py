"""How long leases last, and how long a process may be silent under one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SILENCE_REAL_S: Final = 10.0
"""A process whose event loop makes no turn for so long counts as dead, unless it was told otherwise."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Real seconds."""

    duration_s: float
    """From each renewal on the lease lasts so long; at most a third of it lies between two renewals."""
    silence_s: float = SILENCE_REAL_S
    """An event loop that makes no turn for so long counts as dead."""
