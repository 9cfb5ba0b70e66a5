"""Small regions and requests, drawn by hypothesis, and the best assignment of each by trying all."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import strategies as st

from data_placement.machine_assignment.measure import AssignmentCost, cost_of
from data_placement.machine_assignment.problem import AssignableMachine, AssignmentProblem, ModelProblem
from domain.capacity_requests import CapacityRequest, CapacityUnit, FailureDomain
from domain.identifiers import ClusterId, GpuModel, MachineId, RackId

H100 = GpuModel("H100")
_POWER_DOMAIN_OF = {"r1": "p1", "r2": "p1", "r3": "p2"}


def machine(name: str, cluster: str, rack: str = "r1", gpus: int = 8, running: int = 0) -> AssignableMachine:
    domain = _POWER_DOMAIN_OF.get(rack, rack)
    return AssignableMachine(MachineId(name), ClusterId(cluster), RackId(rack), domain, H100, gpus, running)


def request(cluster: str, amount: int, **more: Any) -> CapacityRequest:
    return CapacityRequest(ClusterId(cluster), H100, amount, **more)


@st.composite
def problems(draw: st.DrawFn) -> AssignmentProblem:
    """Up to six machines of one model in two or three clusters."""
    clusters = draw(st.sampled_from((("a", "b"), ("a", "b", "c"))))
    machines = tuple(
        machine(
            f"m{number}",
            draw(st.sampled_from(clusters)),
            draw(st.sampled_from(("r1", "r2", "r3"))),
            draw(st.sampled_from((4, 8))),
            draw(st.sampled_from((0, 0, 1, 4))),
        )
        for number in range(draw(st.integers(1, 6)))
    )
    unit, survives = draw(st.sampled_from(CapacityUnit)), draw(st.sampled_from(FailureDomain))
    size = 8 if unit is CapacityUnit.GPUS else 1
    requests = [
        request(
            cluster,
            draw(st.integers(0, 3)) * size,
            unit=unit,
            most_per_rack=draw(st.sampled_from((1.0, 0.5))),
            most_per_power_domain=1.0 if survives is FailureDomain.RACK else draw(st.sampled_from((1.0, 0.5))),
            survives=survives,
            spares=draw(st.integers(0, 1)) * size,
            spare_pool=draw(st.sampled_from(("", "shared"))),
        )
        for cluster in clusters
        if draw(st.booleans())
    ]
    return AssignmentProblem(machines, tuple(requests))


def best_of_all(model: ModelProblem) -> AssignmentCost:
    """The least cost of all assignments."""
    asking = {one.cluster for one in model.requests}
    choices = [sorted({one.cluster, *asking}) for one in model.machines]
    names = [one.machine for one in model.machines]
    return min(cost_of(model, dict(zip(names, chosen, strict=True))) for chosen in product(*choices))
