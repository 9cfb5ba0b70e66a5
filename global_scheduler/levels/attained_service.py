"""Least attained service, discretised: the 2D-LAS of Tiresias (§3.2.2 attained service, §3.2.3 discretised queues).

Rule: a workload is at level k when it has received at least the first k thresholds in GPU-seconds (GPUs × time, over
all its attempts), and fewer than the next. The default, 3,200 GPU-seconds, is the one of §5.2. One that waits below the
best level is promoted to it when it has waited `promote_knob` times as long as it ran (PROMOTEKNOB), and at least
`starve_limit_s` (STARVELIMIT); then its service and its run time count from zero again.
Invariant: a level never gets better while a workload runs or waits, but by promotion; a victim has received more than a
threshold that the one it makes room for has not, since either's last promotion. With a knob of k none waits below the best
level for longer than k times what it has run since its last promotion, or the limit if that is longer.
Ignores: how long a workload will run. Without knob and limit the demoted may starve.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from global_scheduler.arithmetic import Numbers
from global_scheduler.knowledge import Knowledge, PolicyInput
from global_scheduler.levels.policy import CLOCK_SLACK_S, WORST_LEVEL, RunningLevels


@dataclass(frozen=True, slots=True)
class AttainedService:
    """Levels by GPU-seconds received; the thresholds ascend."""

    thresholds_gpu_s: tuple[float, ...] = (3200.0,)
    promote_knob: float | None = None
    """Times the run time; infinity: none is ever promoted. None: the limit alone decides."""
    starve_limit_s: float | None = None
    """None: the knob alone decides; none is promoted if that is None, too."""
    name: str = "attained_service"
    needs: Knowledge = Knowledge.LIVE
    moves_with_time: bool = False

    def __post_init__(self) -> None:
        require_thresholds(self.thresholds_gpu_s)
        if self.promote_knob is not None and not self.promote_knob > 0:
            raise ValueError(
                f"promote_knob must be greater than 0 (infinity: none is promoted), not {self.promote_knob:g}"
            )
        if self.starve_limit_s is not None and not 0 <= self.starve_limit_s < math.inf:
            raise ValueError(f"starve_limit_s must be a number of seconds from 0 on, not {self.starve_limit_s:g}")

    def queued_levels(self, queue: PolicyInput[Numbers]) -> Numbers:
        return level_of_service(queue, self.thresholds_gpu_s, queue.known.attained_gpu_s)

    def running_levels(self, running: PolicyInput[Numbers]) -> RunningLevels[Numbers]:
        known, of = running.known, running.arithmetic
        run_s = running.now - known.started_s + CLOCK_SLACK_S
        level = level_of_service(running, self.thresholds_gpu_s, known.attained_gpu_s + run_s * known.gpus)
        # The last level has no end, and what takes no GPUs never receives anything.
        next_threshold = of.pick((*self.thresholds_gpu_s, math.inf), level)
        left_gpu_s = of.choose(known.gpus > 0, next_threshold - known.attained_gpu_s, math.inf)
        return RunningLevels(level, known.started_s + left_gpu_s / of.larger(known.gpus, 1.0))

    def promoted_from_s(self, queue: PolicyInput[Numbers]) -> Numbers:
        """See `global_scheduler.promotion.PromotingLevels`."""
        knob, limit_s, known = self.promote_knob, self.starve_limit_s, queue.known
        if knob == math.inf or (knob is None and limit_s is None):
            return queue.constant(math.inf)
        wait_s = queue.constant(0.0) if knob is None else known.attained_s * knob
        if limit_s is not None:
            wait_s = queue.arithmetic.larger(wait_s, limit_s)
        return queue.arithmetic.choose(self.queued_levels(queue) > 0, known.queued_since_s + wait_s, math.inf)


def level_of_service(
    works: PolicyInput[Numbers], thresholds_gpu_s: tuple[float, ...], attained_gpu_s: Numbers
) -> Numbers:
    """How many thresholds have been reached."""
    # What was attained is a sum of clock times.
    return works.arithmetic.position(thresholds_gpu_s, attained_gpu_s + CLOCK_SLACK_S, "right")


def require_thresholds(bounds: tuple[float, ...]) -> None:
    """Raises ValueError unless they are bounds of queues."""
    if not bounds or not bounds[0] > 0 or not all(a < b for a, b in pairwise(bounds)) or not bounds[-1] < math.inf:
        raise ValueError(f"thresholds_gpu_s must be one or more numbers greater than 0 that ascend, not {bounds}")
    if len(bounds) > WORST_LEVEL:
        raise ValueError(f"thresholds_gpu_s are {len(bounds)}; at most {WORST_LEVEL} are possible")
