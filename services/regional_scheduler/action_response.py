"""The answer to a requested action."""

from __future__ import annotations

from domain.placement import AttemptKey, TaskPlacement
from domain.plan import Downgrade, Evict, Migrate, Plan, Reclaim, Restore, Retune, ScaleIn, ScaleOut, Start, execute
from services.regional_scheduler.region_memory import RegionMemory
from services.wire.plans import attempt_to_text
from services.wire.workloads import placement_to_proto
from topmast.v1 import regional_scheduler_pb2


def action_response(plan: Plan, memory: RegionMemory) -> regional_scheduler_pb2.ActionResponse:
    """The plan, which is stored, in a message."""
    answer = _Answer(memory)
    execute(plan.actions, answer)
    return regional_scheduler_pb2.ActionResponse(
        changes=bool(plan.actions),
        placements=[placement_to_proto(placement) for placement in answer.placements],
        evicting=[attempt_to_text(key) for key in sorted(answer.evicting)],
    )


class _Answer:
    """Collects where the actions lead."""

    def __init__(self, memory: RegionMemory) -> None:
        self.placements: tuple[TaskPlacement, ...] = ()
        self.evicting: list[AttemptKey] = []
        self._memory = memory

    def start(self, action: Start) -> None:
        self.placements = action.placements

    def evict(self, action: Evict) -> None:
        self.evicting.append(action.victim)

    def downgrade(self, action: Downgrade) -> None:
        self._changed(action.attempt)

    def restore(self, action: Restore) -> None:
        self._changed(action.attempt)

    def scale_in(self, action: ScaleIn) -> None:
        self._changed(action.attempt)

    def scale_out(self, action: ScaleOut) -> None:
        self._changed(action.attempt)

    def retune(self, action: Retune) -> None:
        self._changed(action.attempt)

    def migrate(self, action: Migrate) -> None:
        self.evicting.append(action.attempt)
        self.placements = action.placements

    def reclaim(self, action: Reclaim) -> None:
        self.evicting.extend(action.victims)

    def _changed(self, key: AttemptKey) -> None:
        attempt = self._memory.live.get(key)
        self.placements = attempt.placements if attempt is not None else ()
