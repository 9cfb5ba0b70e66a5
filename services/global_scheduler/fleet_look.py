"""What there is and what is on it, as the database says at one moment: for people who look at the fleet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from domain.fleet import MachineState
from services.database import fleet_look_store, fleet_store
from services.database.connection import AnyConnection
from services.database.fleet_look_store import Capacity, Holder, LookedAtMachine, MachineFilter
from services.global_scheduler.request_checks import GREATEST_PAGE, Checks
from services.grpc_errors import NotFound
from topmast.v1 import fleet_state_pb2 as messages

PAGE_BYTES = 3 * 2**20
"""A page of machines ends early when it is larger: gRPC clients take 4 MiB by default."""

_NAMED = 20


async def capacities(connection: AnyConnection, request: messages.GetFleetRequest) -> messages.GetFleetResponse:
    """Raises InvalidArgument, and NotFound for a region, cluster or model that the fleet does not have."""
    checks = Checks()
    checks.name("region", request.region)
    checks.name("cluster", request.cluster)
    checks.text("gpu_model", request.gpu_model)
    checks.raise_problems()
    model = request.gpu_model if request.HasField("gpu_model") else None
    found = await fleet_look_store.capacities(connection, request.region, request.cluster, model)
    if not found:
        await _require_named(connection, request.region, request.cluster, model)
    regions = await fleet_store.region_names(connection)
    return messages.GetFleetResponse(
        capacities=[_capacity(one) for one in found],
        regions=[region for region in regions if request.region in ("", region)],
    )


async def machines(
    connection: AnyConnection, request: messages.ListMachinesRequest, owners: Collection[str] | None = None
) -> messages.ListMachinesResponse:
    """With who holds what, as far as these tenants do; None: all. Raises as `capacities`."""
    wanted, page_size = _machine_filter(request)
    found = await fleet_look_store.machines_after(connection, wanted, request.page_token, page_size + 1)
    if not found and not request.page_token:
        await _require_named(connection, wanted.region, wanted.cluster, wanted.gpu_model)
    shown = found[:page_size]
    holders = await fleet_look_store.holders_on(connection, [one.machine for one in shown])
    down = await fleet_look_store.down_reasons(connection, [one.machine for one in shown if one.state.is_down])
    answer = messages.ListMachinesResponse()
    size = 0
    for one in shown:
        held = [held for held in holders.get(one.machine, ()) if owners is None or held.tenant in owners]
        message = _machine(one, held, down.get(one.machine, ""))
        size += message.ByteSize()
        if answer.machines and size > PAGE_BYTES:
            break
        answer.machines.append(message)
    if len(answer.machines) < len(found):
        answer.next_page_token = answer.machines[-1].machine
    return answer


def _machine_filter(request: messages.ListMachinesRequest) -> tuple[MachineFilter, int]:
    checks = Checks()
    for field in ("region", "cluster", "rack", "machine"):
        checks.name(field, getattr(request, field))
    checks.text("gpu_model", request.gpu_model)
    checks.text("page_token", request.page_token)
    page_size = checks.count("page_size", request.page_size, 100, GREATEST_PAGE)
    states: list[MachineState] = []
    for index, state in enumerate(request.states):
        try:
            states.append(MachineState(state))
        except ValueError:
            known = ", ".join(one.value for one in MachineState)
            checks.add(f"states[{index}]", f"must be one of {known}, not {state!r}")
    checks.raise_problems()
    wanted = MachineFilter(
        request.region,
        request.cluster,
        request.rack,
        request.machine,
        tuple(states),
        request.gpu_model if request.HasField("gpu_model") else None,
        request.occupied,
    )
    return wanted, page_size


async def _require_named(connection: AnyConnection, region: str, cluster: str, model: str | None) -> None:
    """Raises NotFound for the first of these that the fleet does not have; says which there are."""
    regions = await fleet_store.region_names(connection)
    if region and region not in regions:
        raise NotFound("region", region, f"the fleet has {_listed(regions)}")
    if not (cluster or model):
        return
    there = await fleet_look_store.capacities(connection, region)
    of_region = f"region {region}" if region else "the fleet"
    clusters = {one.cluster for one in there}
    if cluster and cluster not in clusters:
        raise NotFound("cluster", cluster, f"{of_region} has {_listed(sorted(clusters))}")
    models = {one.gpu_model for one in there if one.gpu_model and cluster in ("", one.cluster)}
    if model and model not in models:
        place = f"cluster {cluster}" if cluster else of_region
        raise NotFound("GPU model", model, f"{place} has {_listed(sorted(models))}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_NAMED]) or "none"
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def _capacity(one: Capacity) -> messages.FleetCapacity:
    return messages.FleetCapacity(
        region=one.region,
        cluster=one.cluster,
        gpu_model=one.gpu_model,
        machines=one.machines,
        machines_up=one.machines_up,
        gpus=one.gpus,
        gpus_in_use=one.gpus_in_use,
        gpus_free=one.gpus_free,
        gpus_draining=one.gpus_draining,
        gpus_down=one.gpus_down,
        gpus_serving=one.gpus_serving,
        gpus_lent=one.gpus_lent,
        alive=one.alive,
        lost=one.lost,
    )


def _machine(one: LookedAtMachine, holders: Sequence[Holder], down_reason: str) -> messages.FleetMachine:
    message = messages.FleetMachine(
        machine=one.machine,
        region=one.region,
        cluster=one.cluster,
        rack=one.rack,
        state=one.state.value,
        gpu_model=one.gpu_model,
        gpus=one.gpus,
        gpus_in_use=sum(holder.gpus for holder in holders),
        cpus=one.cpus,
        memory_gib=one.memory_gib,
        down_reason=down_reason,
        holders=[
            messages.MachineHolder(
                workload=holder.workload,
                attempt=holder.attempt,
                tenant=holder.tenant,
                tasks=holder.tasks,
                gpus=holder.gpus,
            )
            for holder in holders
        ],
    )
    if one.drain is not None:
        message.drain.reason, message.drain.drained_s = one.drain.reason, one.drain.drained_s
        if one.drain.deadline_s is not None:
            message.drain.deadline_s = one.drain.deadline_s
    return message
