"""Whom the kernel ends when a machine has no memory left: tasks first, what schedules them last.

Linux chooses the process with the largest share of the memory, plus `oom_score_adj` thousandths of it: with 1000 it goes
before all others, with a negative one after them. Anybody may raise it; to lower it below what it began with takes root, or
CAP_SYS_RESOURCE. The reaper of a task raises that of all the task starts (`services.execution.task_reaper`).
"""

from __future__ import annotations

from pathlib import Path

import structlog

SERVICE_SCORE = -500
"""Of the host, its database, its Ray and the tiers. Not -1000: what may never be ended could end the machine."""

RUNNER_SCORE = 0
"""Of what stands beside a task: Ray gives its workers 1000, as if they were the user's program."""

_OWN = Path("/proc/self/oom_score_adj")

_log = structlog.get_logger(__name__)


def lower_own_score(wanted: int, own: Path = _OWN) -> int | None:
    """Gives this process, and what it starts from now on, that score, or the nearest one down to it that it may have, never a
    higher one than now; returns what it has then. None where there are no scores."""
    try:
        now = int(own.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    for score in (wanted, max(wanted, 0)):
        if score >= now:
            break
        try:
            own.write_text(f"{score}\n", encoding="ascii")
        except OSError as refused:
            _log.debug("the kernel refuses a lower score", score=score, error=str(refused))
        else:
            return score
    return now
