"""The adjustment of what runs in a region, once in every round: flexible tasks first (Lyra §5.2), then CPUs and memory (Synergy §4).

Rule: the elastic policy says which running attempts get more tasks or fewer; on the capacity as it is then, the tuning
says which hold other amounts of CPU and memory. Both return actions of plans, which the caller carries out as any
others. One function for the service and for simulations.

Invariant: every action is possible when those before it are; none starts, evicts or moves anything, none takes a base
task or exceeds a job's bounds (I2), and nothing is given out twice (I1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from domain.placement_changes import check_gang
from domain.plan import Action, Retune, ScaleIn, ScaleOut
from domain.rank import Standing
from domain.tuned_speed import ProfilesOfJobs
from regional_scheduler.plan_application import apply_actions
from regional_scheduler.region_capacity import RegionCapacity
from regional_scheduler.requested_plans import AttemptToChange

Resize: TypeAlias = ScaleIn | ScaleOut


@dataclass(frozen=True, slots=True)
class AdjustableAttempt(AttemptToChange):
    """An attempt that runs and may be changed: it is not leaving, and carries out no earlier change any more."""

    standing: Standing
    started_s: float
    remaining_s: float
    """Seconds of work that are left, at the speed of its base tasks with proportional shares; infinity: not known."""
    profiles: ProfilesOfJobs = field(default_factory=dict)
    """How sensitive its jobs are to CPUs and memory."""
    may_grow: bool = True
    """False for a while after a task of it was killed: it gets no more tasks than it has."""


class ElasticPolicy(Protocol):
    """Decides how many tasks elastic attempts have."""

    @property
    def name(self) -> str: ...

    def resize(
        self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt], now: float, *, anything_waits: bool
    ) -> Sequence[Resize]:
        """What is to be resized, in an order in which each action is possible. `attempts` come by key.

        `anything_waits`: whether the queue has workloads that have not started.

        The region is as before when this returns: what it tries out it does in `RegionCapacity.tentatively`.
        """
        ...


class RegionTuning(Protocol):
    """Decides how much CPU and memory running attempts hold, on the machines and GPUs that they have."""

    @property
    def name(self) -> str: ...

    def retune(self, region: RegionCapacity, attempts: Sequence[AdjustableAttempt]) -> Sequence[Retune]:
        """What is to be retuned; as `ElasticPolicy.resize`."""
        ...


def adjust(
    region: RegionCapacity,
    attempts: Sequence[AdjustableAttempt],
    elastic: ElasticPolicy | None,
    tuning: RegionTuning | None,
    now: float,
    *,
    anything_waits: bool,
) -> tuple[Action, ...]:
    """What is to be done with what runs in the region: the actions in their order; the region is as before.

    Raises ImpossibleAction or InventoryError when a policy's answer is not possible.
    """
    actions: list[Action] = []
    by_key = sorted(attempts, key=lambda attempt: attempt.key)
    with region.tentatively():
        if elastic is not None:
            resizes = elastic.resize(region, by_key, now, anything_waits=anything_waits)
            apply_actions(region, resizes, now)
            actions += resizes
            if resizes:
                by_key = [_as_held(region, attempt) for attempt in by_key]
        if tuning is not None:
            retunes = tuning.retune(region, by_key)
            apply_actions(region, retunes, now)
            actions += retunes
        if actions:
            changed = {action.attempt for action in actions if isinstance(action, ScaleIn | ScaleOut | Retune)}
            for attempt in by_key:
                if attempt.key in changed:
                    check_gang(attempt.key, attempt.specification, _as_held(region, attempt).placements)
    return tuple(actions)


def _as_held(region: RegionCapacity, attempt: AdjustableAttempt) -> AdjustableAttempt:
    """The attempt with what it holds in the region now."""
    holding = region.holding(attempt.key)
    placements = () if holding is None else holding.placements
    return replace(attempt, placements=placements)
