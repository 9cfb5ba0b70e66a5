"""The options of the demo."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to run the demo; every default makes it fit into three minutes on two cores."""

    trace: Path | None = None
    """Any trace CSV; None: the built-in generator."""
    workloads: int = 400
    seed: int = 1
    load: float = 0.95
    """GPUs that the workloads ask for on average while they are being submitted, over the fleet's."""
    duration_cap_s: float = 1.5 * 3600.0
    """Longer workloads are cut to this; the demo says how many."""
    running_real_s: float = 60.0
    """The clock is compressed so that the slice takes about so long."""
    json: bool = False
    """One JSON object on standard output at the end, and no live view."""
    keep: Path | None = None
    """Use this folder as TOPMAST_HOME and leave it (with the event log) behind."""
    limit_real_s: float = 150.0
    """Give up waiting after that; what has not ended by then is reported as unfinished."""
