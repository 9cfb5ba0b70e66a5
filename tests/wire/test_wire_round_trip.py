"""What is sent is what arrives: every value survives the way over the wire, through real bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.events import Event, EventKind
from domain.identifiers import RegionId, WorkloadId
from domain.life_cycle import State
from domain.placement import AttemptKey, Score, TaskPlacement
from domain.plan import Evict, Plan, Start
from domain.tenant import Tenant
from domain.workload import WorkloadSpecification
from formats.fleet_file import FleetFile
from services.global_scheduler.replacement_checks import checked_fleet, checked_tenants
from services.wire.events import event_from_proto, event_to_proto
from services.wire.fleets import fleet_to_proto, tenant_to_proto
from services.wire.malformed_message import MalformedMessage
from services.wire.plans import (
    attempt_reference_to_proto,
    attempt_to_text,
    plan_to_proto,
    score_to_proto,
)
from services.wire.workloads import (
    placement_from_proto,
    placement_to_proto,
    specification_from_proto,
    specification_to_proto,
    state_from_proto,
    state_to_proto,
)
from tests.formats.format_values import fleet_files, tenant_lists
from tests.wire import domain_values
from topmast.v1 import cluster_manager_pb2, event_pb2, fleet_pb2, regional_scheduler_pb2, workload_pb2


@given(domain_values.specifications)
def test_never_changes_a_specification(specification: WorkloadSpecification) -> None:
    sent = specification_to_proto(specification).SerializeToString()
    assert specification_from_proto(workload_pb2.WorkloadSpecification.FromString(sent)) == specification


@given(domain_values.placements)
def test_never_changes_a_placement(placement: TaskPlacement) -> None:
    sent = placement_to_proto(placement).SerializeToString()
    assert placement_from_proto(workload_pb2.TaskPlacement.FromString(sent)) == placement


@given(fleet_files())
def test_never_changes_a_fleet_or_its_tables(sent: FleetFile) -> None:
    message = fleet_to_proto(sent.fleet, sent.tables).SerializeToString()
    assert checked_fleet(fleet_pb2.Fleet.FromString(message)) == sent


@given(tenant_lists())
def test_never_changes_a_tenant(sent: tuple[Tenant, ...]) -> None:
    messages = [tenant_to_proto(tenant).SerializeToString() for tenant in sent]
    assert checked_tenants(tuple(map(fleet_pb2.Tenant.FromString, messages))) == sent


@given(domain_values.events, st.integers(0, 2**62))
def test_never_changes_an_event(event: Event, sequence: int) -> None:
    received = event_pb2.Event.FromString(event_to_proto(event, sequence).SerializeToString())
    assert received.sequence == sequence
    assert event_from_proto(received) == event


@given(domain_values.events)
def test_never_writes_whole_numbers_of_an_event_with_a_fraction(event: Event) -> None:
    received = event_from_proto(event_to_proto(event, 1))
    again = json.loads(json.dumps(received.as_json()))
    assert again == received.as_json()
    assert not any(isinstance(number, float) and number.is_integer() for number in _numbers(dict(received.details)))


def _numbers(value: object) -> list[object]:
    if isinstance(value, dict):
        return [number for element in value.values() for number in _numbers(element)]
    if isinstance(value, list):
        return [number for element in value for number in _numbers(element)]
    return [value]


@given(domain_values.scores)
def test_never_changes_a_score(score: Score) -> None:
    sent = score_to_proto(score).SerializeToString()
    assert _score(regional_scheduler_pb2.Score.FromString(sent)) == score


def _score(message: regional_scheduler_pb2.Score) -> Score:
    values = {name: getattr(message, name) for name in Score._fields}
    by_priority = [name for name in Score._fields if name.endswith("_by_priority")]
    return Score(**values | {name: tuple(values[name]) for name in by_priority})


@given(domain_values.attempt_keys)
def test_never_changes_an_attempt_key(key: AttemptKey) -> None:
    sent = attempt_reference_to_proto(key).SerializeToString()
    received = cluster_manager_pb2.AttemptReference.FromString(sent)
    assert (received.workload, received.attempt) == key
    assert attempt_to_text(key) == f"{key.workload}#{key.attempt}"


@given(domain_values.placements, domain_values.attempt_keys, domain_values.scores)
def test_never_loses_a_part_of_a_plan(placement: TaskPlacement, victim: AttemptKey, score: Score) -> None:
    plan = Plan(WorkloadId("w"), RegionId("eu"), (Evict(victim), Start((placement,))), score)
    message = plan_to_proto(plan, "it evicts one workload")
    assert message.placeable
    assert message.reason == "it evicts one workload"
    assert [placement_from_proto(read_back) for read_back in message.placements] == [placement]
    assert list(message.evictions) == [attempt_to_text(victim)]
    assert _score(message.score) == score


@pytest.mark.parametrize("state", State)
def test_every_state_has_its_number(state: State) -> None:
    assert state_from_proto(state_to_proto(state)) is state


def test_every_state_of_the_messages_is_one_of_the_domain() -> None:
    assert {value.name for value in workload_pb2.WorkloadState.DESCRIPTOR.values if value.number} == {
        f"WORKLOAD_STATE_{state.value}" for state in State
    }


@pytest.mark.parametrize("number", [0, -1, 999])
def test_an_unknown_state_is_refused_with_those_that_there_are(number: int) -> None:
    with pytest.raises(MalformedMessage, match=f"state: {number} is no state .* PENDING"):
        state_from_proto(number)


def test_an_unknown_kind_of_event_is_refused() -> None:
    message = event_to_proto(Event(1.0, EventKind.SUBMITTED), 1)
    message.event = "teleported"
    with pytest.raises(MalformedMessage, match="'teleported' is no kind of event"):
        event_from_proto(message)
