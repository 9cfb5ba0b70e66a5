"""The run of an attempt, driven twice: by the simulator's event queue, and by reports of an emulated cluster.

Whatever a simulation does to an attempt is done to one in the service's hands: its place becomes free, it has to leave,
its machine is lost. What the emulated cluster reports of it then must lead to the same actions, at the same times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from benchmarks.decision_digests import made_rows, three_regions
from benchmarks.simulate import tenants_for
from cluster_manager.attempt_run.actions import (
    AttemptAction,
    RecordCheckpoint,
    RecordEnd,
    RecordProgress,
)
from cluster_manager.attempt_run.events import AttemptEvent, LeaveAsked, MachineLost, PlaceFreed
from cluster_manager.attempt_run.invariants import check
from cluster_manager.attempt_run.machine import Step, step
from cluster_manager.attempt_run.run import AttemptFacts, AttemptRun, new_run
from domain.identifiers import ClusterId, JobName, MachineId, TenantId
from domain.placement import AttemptKey, TaskPlacement
from domain.rank import Standing
from domain.resources import TaskResources
from domain.workload import Emulated, JobSpecification, WorkloadSpecification
from services.execution.emulation import Emulation
from services.execution.executor import AttemptOrder, AttemptStatus
from services.regional_scheduler.gang_reports import end_of, start_of, take_report
from services.regional_scheduler.live_attempts import LiveAttempt, Order, wanted_order
from simulator.engine import attempts
from simulator.engine.settings import CostSettings, FailureSettings, SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.inputs.regions import anywhere
from simulator.policies.registry import policy_called

SAVE_S = 30.0
INTERVAL_S = 900.0
SETTINGS = SimulationSettings(
    costs=CostSettings(
        container_start_s=0.0, checkpoint_save_s=SAVE_S, restore_s=0.0, checkpoint_interval_s=INTERVAL_S
    ),
    failures=FailureSettings(machine_mtbf_s=5 * 86_400.0),
)
_TENANT = TenantId("t")
CLUSTER, MACHINE = ClusterId("c"), MachineId("m")

Course = list[tuple[AttemptEvent, tuple[AttemptAction, ...]]]
"""What happened to an attempt, and what had to be done about it each time."""


@pytest.mark.parametrize("policy_name", ["mast", "srtf"])
def test_reports_of_a_cluster_lead_to_the_actions_of_the_simulator(
    policy_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    courses: dict[AttemptKey, tuple[AttemptRun, Course]] = {}

    def watched_step(run: AttemptRun, event: AttemptEvent) -> Step:
        after, actions = step(run, event)
        check(after)
        courses.setdefault(run.key, (run, []))[1].append((event, actions))
        return after, actions

    monkeypatch.setattr(attempts, "step", watched_step)
    rows = [replace(row, checkpoint_s=INTERVAL_S) for row in made_rows(300, 3.0)()]
    fleet, policy = three_regions(rows), policy_called(policy_name)
    given = SimulationInput("made", anywhere(rows), fleet, tenants_for(rows, fleet, scans=policy.scans))
    simulate(given, policy, SETTINGS, seed=3)

    durations = {row.workload_id: row.duration_s for row in rows}
    for run, course in courses.values():
        simulated = _without_reasons(action for _, actions in course for action in actions)
        assert _through_the_service(run.facts, durations[run.key.workload], course) == simulated
    kinds = {type(event) for _, course in courses.values() for event, _ in course}
    causes = {action.end for _, course in courses.values() for _, actions in course for action in actions
              if isinstance(action, RecordEnd)}  # fmt: skip
    assert {LeaveAsked, MachineLost} <= kinds
    assert {"completed", "preempted", "machine_lost"} <= causes


def _without_reasons(actions: Iterable[AttemptAction]) -> list[AttemptAction]:
    """Clusters say in a sentence how it ended, and how far it is on the way: the simulator does not."""
    return [
        action._replace(reason="") if isinstance(action, RecordEnd) else action
        for action in actions
        if not isinstance(action, RecordProgress | RecordCheckpoint)
    ]


def _through_the_service(facts: AttemptFacts, duration_s: float, course: Course) -> list[AttemptAction]:
    """The region only hears when the place is free, when it has to leave and when its machine is lost."""
    service = _EmulatedService(facts, duration_s)
    for event, _ in course:
        match event:
            case PlaceFreed() | LeaveAsked():
                service.decide(event)
            case MachineLost():
                service.lose_machine(event)
            case _:
                service.wait_until(event.at_s)
    return _without_reasons(service.actions)


class _EmulatedService:
    """One attempt in a region's memory, and the emulated cluster that carries out the orders."""

    def __init__(self, facts: AttemptFacts, duration_s: float) -> None:
        job = JobSpecification(JobName("j"), 1, TaskResources(gpus=1), Emulated(duration_s, INTERVAL_S))
        specification = WorkloadSpecification("w", _TENANT, (job,), stop_grace_s=SAVE_S)
        placement = TaskPlacement(JobName("j"), 0, CLUSTER, MACHINE, (0,), 1000, 1024)
        self.actions: list[AttemptAction] = []
        self._attempt = LiveAttempt(
            run=new_run(facts),
            tenant=_TENANT,
            specification=specification,
            standing=Standing(0, 0),
            within_quota=True,
            guaranteed=True,
            dispatched_s=0.0,
            charges={},
            placements=(placement,),
        )
        self._emulation = Emulation(checkpoint_time_s=SAVE_S)

    def decide(self, event: PlaceFreed | LeaveAsked) -> None:
        self.wait_until(event.at_s)
        self.actions += self._attempt.take(event)
        self._give_order(event.at_s)

    def lose_machine(self, event: MachineLost) -> None:
        self.wait_until(event.at_s)
        self.actions += self._attempt.take(event)
        self._hear(self._emulation.set_machine(MACHINE, up=False, reason="test", now=event.at_s), event.at_s)

    def wait_until(self, now: float) -> None:
        self._hear(self._emulation.advance(now), now)

    def _give_order(self, now: float) -> None:
        attempt = self._attempt
        order = wanted_order(attempt, CLUSTER)
        changed: list[AttemptStatus] = []
        if order is not None:
            attempt.ordered[CLUSTER] = order
            attempt.perhaps_known.add(CLUSTER)
        if order is Order.EXECUTE:
            facts = attempt.run.facts
            plan = AttemptOrder(facts.key, attempt.specification, attempt.placements, progress=facts.progress_at_start)
            changed = self._emulation.execute(plan, now)
        elif order is Order.STOP:
            changed = self._emulation.stop(attempt.key, attempt.specification.stop_grace_s, now)
        elif order is Order.KILL:
            changed = self._emulation.stop(attempt.key, 0.0, now)
        self._hear(changed, now)

    def _hear(self, changed: Sequence[AttemptStatus], now: float) -> None:
        """As a session does: progress at once, starts and ends when they are recorded."""
        for status in changed:
            self._attempt.reports[CLUSTER] = status
            self.actions += take_report(self._attempt, status, now)
        for event in (start_of(self._attempt), end_of(self._attempt, now)):
            if event is not None:
                self.actions += self._attempt.take(event)
                check(self._attempt.run)
