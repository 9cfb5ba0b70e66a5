"""Who is on a machine and who waits for whom is found without a look at every attempt: as a look at every one finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.identifiers import JobName, MachineId
from domain.placement import AttemptKey, TaskPlacement
from domain.placement_changes import ChangeKind, PlacementChange, undone
from services.regional_scheduler.live_attempts import LiveAttempt, RegionAttempts
from tests.regional_scheduler_service.test_live_attempts import EAST_A, attempt_in, running

MACHINES = tuple(MachineId(f"m{number}") for number in range(3))
Machines = Sequence[MachineId]
MACHINE_LISTS = st.lists(st.sampled_from(MACHINES), min_size=1, max_size=3, unique=True)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "change", "undo_change", "end_change", "evict", "remove"]),
        st.integers(0, 4),
        MACHINE_LISTS,
    )
)


def on(machines: Machines) -> tuple[TaskPlacement, ...]:
    return tuple(TaskPlacement(JobName("main"), n, EAST_A, m, (0,), 1000, 1024) for n, m in enumerate(machines))


@dataclass
class Plain:
    """Looks at every attempt."""

    live: list[LiveAttempt] = field(default_factory=list)

    def on(self, machine: MachineId) -> list[AttemptKey]:
        return sorted(attempt.key for attempt in self.live if machine in attempt.machines)

    def waiting_for(self, key: AttemptKey) -> list[AttemptKey]:
        return sorted(a.key for a in self.live if a.change is not None and key in a.change.waits_for)


@given(STEPS)
def test_never_is_an_attempt_missed_on_a_machine_or_among_those_who_wait(
    steps: list[tuple[str, int, list[MachineId]]],
) -> None:
    live, plain, added = RegionAttempts(), Plain(), 0
    keys: set[AttemptKey] = set()
    for what, chosen, machines in steps:
        if what == "add":
            attempt = running(attempt_in(EAST_A, name=f"w{added}"))
            attempt.placements = on(machines)
            added += 1
            live.add(attempt)
            plain.live.append(attempt)
            keys.add(attempt.key)
        elif plain.live:
            _happen(live, plain, plain.live[chosen % len(plain.live)], what, machines)
        for machine in MACHINES:
            assert live.on(machine) == plain.on(machine)
        for key in keys:
            assert live.waiting_for(key) == plain.waiting_for(key)


def _happen(live: RegionAttempts, plain: Plain, attempt: LiveAttempt, what: str, machines: Machines) -> None:
    match what:
        case "change" if attempt.change is None:
            before, after = attempt.placements, on(machines)
            released = tuple(placement for placement in before if placement not in after)
            others = tuple(sorted(other.key for other in plain.live if other is not attempt))
            change = PlacementChange(ChangeKind.RESIZED, before, released, waits_for=others)
            live.begin_change(attempt.key, after, change)
        case "undo_change" if attempt.change is not None and attempt.eviction is None:
            live.begin_change(attempt.key, attempt.change.before, undone(attempt.change, attempt.placements))
        case "end_change" if attempt.change is not None:
            live.end_change(attempt.key, {EAST_A: (3.0, 0.0)})
        case "evict" if attempt.eviction is None:
            live.begin_eviction(attempt.key, Eviction(EvictionCause.DRAINED), 2.0)
        case "remove":
            live.remove(attempt.key)
            plain.live.remove(attempt)
        case _:
            pass
