"""What a cluster manager runs attempts on."""

from __future__ import annotations

from enum import StrEnum


class ExecutorKind(StrEnum):
    """What a cluster manager runs attempts on."""

    RAY = "ray"
    """Real processes on Ray; emulated workloads beside them."""
    EMULATED = "emulated"
    """Emulated workloads only: no Ray is needed."""
