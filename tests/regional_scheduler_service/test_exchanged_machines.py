"""Other machines are taken over while attempts run: what is known of these goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_placement.catalog import Catalog
from domain.fleet import Fleet
from domain.identifiers import AttemptNumber, ClusterId, MachineId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, Holding
from domain.rank import Standing
from domain.reservation import Reservation, ReservationRule
from domain.sensitivity import SensitivityProfile
from formats.trace_workload import MODEL_LABEL
from regional_scheduler.bidding import RegionBidder
from regional_scheduler.region_change import capacity_after_change
from services.database.attempt_store import StoredAttempt
from services.database.revision_store import Revisions
from services.database.sensitivity_store import StoredProfile
from services.regional_scheduler.loading import make_memory
from services.regional_scheduler.orders import resize_request
from services.wire.workloads import specification_to_proto
from tests.database.small_world import EAST, FLEET, TENANTS, cluster, new_attempt, placement, specification

GANG = WorkloadId("gang")
KEPT = Reservation(
    GANG,
    EAST,
    (ClusterId("east-b"),),
    (MachineId("east-b-r0-m0"),),
    8,
    Standing(3, 0),
    made_s=1_000.0,
    expected_start_s=10_000.0,
    expires_s=12_000.0,
)
PROFILE = SensitivityProfile((1.0, 24.0), (0.1, 1000.0), ((1.0, 1.0), (24.0, 24.0)))


def test_an_attempt_with_a_profile_may_be_changed_to_hold_something_on_a_new_machine() -> None:
    new = new_attempt(WorkloadId("w000001"), gpus=4)
    labelled = replace(specification(gpus=4), labels=((MODEL_LABEL, "vgg"),))
    there = new.placements[0]._replace(millicpus=48_000)
    stored = StoredAttempt(
        key=new.key,
        tenant=new.tenant,
        state=State.RUNNING,
        standing=new.standing,
        within_quota=True,
        guaranteed=True,
        submitted_s=1000.0,
        dispatched_s=2000.0,
        started_s=2100.0,
        eviction=None,
        progress_at_start=0.0,
        progress=0.0,
        checkpoint_progress=0.0,
        checkpoint_s=None,
        failures=0,
        charges={},
        placements=(there,),
        specification=specification_to_proto(labelled).SerializeToString(),
        profiles_revision=1,
    )
    profiles = [StoredProfile("vgg", 1, PROFILE)]
    memory = make_memory(Revisions(1, 1, 1, 1), FLEET, {}, TENANTS, Catalog(), [stored], EAST, profiles=profiles)
    assert memory is not None
    east, *others = FLEET.regions
    more = replace(east, clusters=(cluster("east-b", machines_per_rack=3), *east.clusters[1:]))
    fleet = Fleet((more, *others))
    inventory = capacity_after_change(memory.inventory, fleet.region(EAST), {})
    memory.exchange_machines(more, inventory, RegionBidder(more, inventory, memory.catalog))
    attempt = memory.live.get(new.key)
    assert attempt is not None
    moved = placement("east-b-r0-m2", 4)._replace(task=1, millicpus=48_000)
    attempt.placements = (there, moved)
    request = resize_request(attempt, moved.cluster)
    assert request.work_rate == pytest.approx(2.0)


def test_what_is_kept_for_a_gang_stays_kept_when_there_are_more_machines() -> None:
    memory = make_memory(
        Revisions(1, 1, 1, 1), FLEET, {}, TENANTS, Catalog(), [], EAST, reservations=ReservationRule(), kept=[KEPT]
    )
    assert memory is not None
    east, *_ = FLEET.regions
    more = replace(east, clusters=(cluster("east-b", machines_per_rack=3), *east.clusters[1:]))
    inventory = capacity_after_change(memory.inventory, more, {})
    assert inventory.reserved.all == (KEPT,)
    asked = specification(tasks=6), Standing(3, 0)
    assert inventory.reserved.binding(WorkloadId("other"), *asked, now=10_000.0) == (KEPT,)
    # And where its gang has started on the machines that there were, it is spent on those that there are.
    memory.inventory.hold(Holding(AttemptKey(GANG, AttemptNumber(1)), Standing(3, 0), 0.0, (placement(),)))
    inventory = capacity_after_change(memory.inventory, more, {})
    assert inventory.reserved.binding(WorkloadId("other"), *asked, now=10_000.0) == ()
