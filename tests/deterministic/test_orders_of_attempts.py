"""Orders to a cluster that come late, twice, in another order or never: its real ledger of attempts on a simulated clock and transport."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import numpy as np
import pytest

from domain.identifiers import MachineId
from domain.placement import AttemptKey
from services.execution.emulated_executor import EmulatedExecutor
from services.execution.executor import AttemptPhase, AttemptStatus, OrderRefused
from tests.deterministic.simulation import SimulatedWorld
from tests.execution.orders import emulated, key

_SCHEDULES = 100
_MESSAGES = 60
_WORKLOADS = ("u", "v")
_LOST_SHARE, _TWICE_SHARE, _LATEST_S = 0.1, 0.25, 30.0


@dataclass
class _Clock:
    """Of the cluster manager; it may be set."""

    world: SimulatedWorld
    ahead_s: float = 0.0

    def now(self) -> float:
        return self.world.now_s + self.ahead_s

    def real_seconds(self, duration_s: float) -> float:
        return duration_s


@dataclass
class _Ledger:
    """One executor, those who order, and what was seen of each attempt."""

    seed: int
    sets_clock: bool = False
    seen: dict[AttemptKey, AttemptStatus] = field(default_factory=dict)
    forgotten: set[AttemptKey] = field(default_factory=set)
    refused: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.world = SimulatedWorld(np.random.default_rng([self.seed, 1]))
        self.clock = _Clock(self.world)
        self.executor = EmulatedExecutor(self.clock, [MachineId("m0")], checkpoint_time_s=1.0)

    def run(self) -> None:
        _, ordering = self.world.start(self, self._order())
        try:
            self.world.run(self.world.now_s + 600.0, lambda: None)
            ordering.result()
        finally:
            self.world.tidy()
        assert not self.world.broke, f"seed {self.seed}: {self.world.broke[0]!r}"

    async def _order(self) -> None:
        """What a region tells in order, and what arrives of it."""
        newest = dict.fromkeys(_WORKLOADS, 1)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_MESSAGES):
                await asyncio.sleep(float(self.rng.exponential(3.0)))
                workload = str(self.rng.choice(_WORKLOADS))
                if self.rng.random() < 0.3:
                    newest[workload] += 1
                attempt = key(workload, newest[workload])
                kind = str(self.rng.choice(["execute", "execute", "stop", "forget"]))
                if self.sets_clock and self.rng.random() < 0.1:
                    self.clock.ahead_s += float(self.rng.uniform(-20.0, 20.0))
                if self.rng.random() >= _LOST_SHARE:
                    tasks.create_task(self._arrives(kind, attempt))
                if self.rng.random() < _TWICE_SHARE:
                    tasks.create_task(self._arrives(kind, attempt))

    async def _arrives(self, kind: str, attempt: AttemptKey) -> None:
        await asyncio.sleep(float(self.rng.uniform(0.0, _LATEST_S)))
        try:
            match kind:
                case "execute":
                    order = emulated(25.0, 5.0, workload=attempt.workload, attempt=attempt.attempt)
                    await self.executor.execute(order)
                case "stop":
                    await self.executor.stop(attempt, 5.0)
                case _:
                    ended = [
                        status.key for status in self.executor.statuses() if status.ended and status.key == attempt
                    ]
                    # As regions do: only what is known to have ended, and is recorded.
                    await self.executor.forget(ended)
                    self.forgotten.update(ended)
        except OrderRefused:
            self.refused += 1
        self._look()

    def _look(self) -> None:
        """What must be true of all that the executor says at this moment."""
        statuses = self.executor.statuses()
        live = [status.key for status in statuses if not status.ended]
        assert len({one.workload for one in live}) == len(live), f"seed {self.seed}: {live} run at the same time"
        for status in statuses:
            before = self.seen.get(status.key)
            assert status.key not in self.forgotten, f"seed {self.seed}: {status.key} was forgotten, and is back"
            assert status.checkpoint_progress <= status.progress, f"seed {self.seed}: {status}"
            if before is None:
                # Each way of saying that one is new passes the fence.
                newer = [one for one in self.seen if one.workload == status.key.workload and one > status.key]
                assert status.ended or not newer, f"seed {self.seed}: {status.key} begins after {newer}"
            else:
                # Emulated work is done by the clock: what it shows goes back with it.
                undone = status.progress < before.progress and not self.sets_clock
                assert not undone, f"seed {self.seed}: work of {status.key} was undone"
                assert status.phase is before.phase or not before.ended, f"seed {self.seed}: {status.key} ended twice"
            self.seen[status.key] = status


@pytest.mark.parametrize("sets_clock", [False, True])
def test_never_do_orders_that_come_anyhow_run_anything_twice(
    *, sets_clock: bool, request: pytest.FixtureRequest
) -> None:
    first = int(request.config.getoption("seed")) * 1_000_000
    phases: set[AttemptPhase] = set()
    refused = 0
    for seed in range(first, first + _SCHEDULES):
        ledger = _Ledger(seed, sets_clock)
        ledger.run()
        phases.update(status.phase for status in ledger.seen.values())
        refused += ledger.refused
    assert {AttemptPhase.COMPLETED, AttemptPhase.STOPPED} <= phases
    assert refused > _SCHEDULES, "stale orders came, and were refused"
