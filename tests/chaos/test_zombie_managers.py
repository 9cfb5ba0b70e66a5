"""A cluster manager that sleeps for longer than its tasks may outlive its lease: they are gone before they run elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from domain.fleet import Fleet, Region
from services.configuration import Configuration, LeaseConfiguration
from services.runtime.tier_place import TierProcesses
from tests.chaos.violence import stopped
from tests.live.real_service import real_service
from tests.live.real_workloads import CLOCK_SPEED, TWO_TENANTS, training
from tests.live.world import A100, EAST, gpu_cluster
from topmast import Event

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

TWO_CLUSTERS = Fleet((Region(EAST, (gpu_cluster("east-a", A100, 1), gpu_cluster("east-b", A100, 1))),))
SOON = Configuration(lease=LeaseConfiguration(duration_real_s=2.0, tasks_stop_after_real_s=8.0, lost_grace_real_s=6.0))


def test_a_task_of_a_paused_manager_never_runs_beside_its_successor() -> None:
    with real_service(TWO_CLUSTERS, TWO_TENANTS, CLOCK_SPEED, SOON, tiers=TierProcesses.SEPARATE) as service:
        release = service.home / "release"
        (name,) = service.submit([training("training", release)])
        service.until_checkpoint(name)
        before = service.until_task_process(name)
        cluster = next(_cluster_of(event) for event in service.events if event.event == "started")
        most: list[int] = [1]

        def began_again(events: Sequence[Event]) -> bool:
            most.append(len(service.task_processes(name)))
            return any(event.event == "started" and event.attempt == 2 for event in events)

        manager = service.process_id(("cluster", cluster))
        assert manager is not None
        with stopped(manager):
            service.until(began_again, "it begins again")
            again = service.until_task_process(name)
            assert again != before
        service.until(lambda events: any(event.event == "cluster_back" for event in events), "the cluster is back")
        assert service.task_processes(name) == [again], "who woke up has touched nothing"
        assert max(most) == 1
        release.touch()
        service.until_all_ended()
        service.check()
        (evicted,) = [event for event in service.events if event.event == "evicted"]
        assert evicted.details["cause"] == "machine_lost"
        assert [_cluster_of(event) for event in service.events if event.event == "started"][1] != cluster


def _cluster_of(event: Event) -> str:
    placement = event.details["placement"]
    assert isinstance(placement, list)
    assert isinstance(placement[0], dict)
    return str(placement[0]["cluster"])
