"""The fleet as it is looked at: every GPU is counted once, whatever its machine does, and who is down says why."""

from __future__ import annotations

from collections.abc import Mapping

from domain.fleet import MachineState
from tests.database.small_world import FLEET, dispatch
from tests.global_scheduler_service.service import Service, attempt_of, in_service, refused, violated_fields
from topmast.v1 import fleet_state_pb2 as messages

STATES = [state.value for state in MachineState]


async def _set_states(service: Service, first: int = 0) -> dict[str, str]:
    """One state after the other from that one on, in the order of the names; returns them by machine."""
    names = sorted(machine.machine for region in FLEET.regions for machine in region.machines())
    states: dict[str, str] = {name: STATES[(first + place) % len(STATES)] for place, name in enumerate(names)}
    async with service.database.transaction() as connection:
        for name, state in states.items():
            await connection.execute("UPDATE machines SET state = %s WHERE machine = %s", (state, name))
    return states


async def _check(service: Service, states: Mapping[str, str]) -> None:
    """All counts are those of machines in these states."""
    answer = await service.stub.GetFleet(messages.GetFleetRequest())
    assert list(answer.regions) == sorted(region.region for region in FLEET.regions)
    machines = {str(machine.machine): machine for region in FLEET.regions for machine in region.machines()}
    assert sum(one.machines for one in answer.capacities) == len(machines)
    assert sum(one.gpus for one in answer.capacities) == sum(machine.gpus for machine in machines.values())
    assert sum(one.gpus_in_use for one in answer.capacities) > 0
    for one in answer.capacities:
        parts = (one.gpus_in_use, one.gpus_free, one.gpus_draining, one.gpus_down, one.gpus_serving)
        assert one.gpus == sum(parts)
    lent = [machines[name].gpus for name, state in states.items() if MachineState(state).is_lent]
    assert sum(one.gpus_lent for one in answer.capacities) == sum(lent)
    assert sum(one.machines_up for one in answer.capacities) == sum(
        MachineState(state).takes_work for state in states.values()
    )


def test_every_gpu_is_counted_once_in_whatever_state_its_machine_is(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        workload = (await service.submit()).workload
        async with service.database.transaction() as connection:
            await dispatch(connection, attempt_of(workload))
        seen: set[str] = set()
        for first in (0, 5):
            states = await _set_states(service, first)
            seen.update(states.values())
            await _check(service, states)
        assert seen == set(STATES)

    in_service(database_url, scenario)


def test_machines_are_filtered_by_state_and_say_why_they_are_down(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        states = await _set_states(service)
        down = sorted(name for name, state in states.items() if state == "down")
        async with service.database.transaction() as connection:
            for reason in ("first", "last"):
                await connection.execute(
                    """INSERT INTO events (t, event, details)
                       VALUES (1.0, 'machine_down', jsonb_build_object('machine', %s::text, 'reason', %s::text))""",
                    (down[0], reason),
                )
        found = await service.stub.ListMachines(messages.ListMachinesRequest(states=["down"]))
        assert [one.machine for one in found.machines] == down
        assert found.machines[0].down_reason == "last"
        error = await refused(service.stub.ListMachines(messages.ListMachinesRequest(states=["up", "asleep"])))
        assert violated_fields(error) == ["states[1]"]
        nobody = await service.stub.ListMachines(messages.ListMachinesRequest(states=["down"], occupied=True))
        assert not nobody.machines

    in_service(database_url, scenario)
