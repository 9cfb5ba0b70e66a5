"""How much memory a process has needed at most."""

from __future__ import annotations

import resource
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CLEAR_PEAK = "5"
"""What resets the peak (Linux, proc(5))."""


def forget_peak_memory() -> None:
    """From here on the peak is counted anew, where the system can do that; else it stays that of the process."""
    try:
        _CLEAR.write_text(_CLEAR_PEAK)
    except OSError:
        # Not Linux, or a container that forbids it: the peak of the process says at least as much.
        return


def peak_memory_mib() -> float:
    """The peak since `forget_peak_memory`, else since the process began."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        lines = []
    peaks = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return (int(peaks[0]) if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) / 1024
