"""A workload in a simulation: what was asked for, where it stands in its life, and its present attempt."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from domain.events import EvictionCause
from domain.identifiers import AttemptNumber, WorkloadId
from domain.life_cycle import Happening, State, next_state
from domain.placement import AttemptKey
from domain.rank import Standing
from domain.workload import Workload

NO_REGION = -1
NO_KEY = AttemptKey(WorkloadId(""), AttemptNumber(0))
NO_STANDING = Standing(0, 0)


@dataclass(slots=True, eq=False)
class SimulatedWorkload:
    """Mutable: the driver moves it along. Policies see it as `simulator.policies.work.Work`."""

    index: int
    workload: Workload
    tenant: int
    gpus: int
    submitted_s: float
    work_s: float
    """Seconds of work in all."""
    checkpoint_interval_s: float
    kind: int
    """Workloads of the same kind ask for the same in the same places (and are of one tenant, where that matters)."""
    eligible: tuple[int, ...]
    """Positions of the regions that have the hardware and the data, and that it is bound to if it is."""
    shape: int = 0
    """Its kind if tenants are not kept apart."""
    own_region: int = NO_REGION
    """Position of the region that its trace names."""
    state: State = State.PENDING
    queued_since_s: float = 0.0
    progress: float = 0.0
    """Seconds of work that are kept: where the next attempt starts."""
    attained_s: float = 0.0
    attained_gpu_s: float = 0.0
    attempts: int = 0
    token: int = 0
    """Changes with everything that makes events to come meaningless."""
    credit: float = 0.0
    """Ordering credit, as it was when it was ranked."""

    # The present attempt.
    key: AttemptKey = NO_KEY
    region: int = NO_REGION
    standing: Standing = NO_STANDING
    within_quota: bool = True
    dispatched_s: float = math.nan
    started_s: float = math.nan
    victims_left: int = 0
    """Attempts that have yet to leave before it can start."""
    makes_room_for: SimulatedWorkload | None = None
    room_token: int = 0
    leaves_because: EvictionCause | None = None
    reached: float = 0.0
    """Progress when it was told to leave."""
    kept: float = 0.0
    """What of that is kept."""
    cpus: float = 0.0
    """What it holds."""
    row: int = -1
    """Its row in the table of attempts."""
    charges: dict[str, int] = field(default_factory=dict)
    """What it takes of its tenant's quota."""

    @property
    def remaining_s(self) -> float:
        return self.work_s - self.progress

    @property
    def running(self) -> bool:
        return self.state is State.RUNNING

    def happens(self, happening: Happening) -> None:
        """The next state by the life cycle's table; raises TransitionRefused."""
        self.state = next_state(self.workload.workload, self.state, happening)

    def progress_at(self, now: float) -> float:
        """What it has reached while it runs, in seconds of work; never more than there is."""
        if math.isnan(self.started_s):
            return self.progress
        return min(self.work_s, self.progress + (now - self.started_s))

    def checkpoint_at(self, now: float) -> float:
        """What of that is safe without a chance to save it: the last periodic checkpoint."""
        if self.checkpoint_interval_s <= 0 or math.isnan(self.started_s):
            return self.progress
        done = self.progress_at(now) - self.progress
        return self.progress + math.floor(done / self.checkpoint_interval_s + 1e-9) * self.checkpoint_interval_s
