from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.capacity_requests import CapacityRequest, CapacityUnit, ClusterRequests, FailureDomain
from domain.identifiers import ClusterId, GpuModel
from formats.capacity_requests_file import check_requests, dump_requests, parse_requests
from formats.fleet_file import parse_fleet_file
from formats.problems import FormatError

FLEET = parse_fleet_file("""
regions:
- region: west
  clusters:
  - cluster: a
    machine_groups:
    - {count: 4, machines_per_rack: 2, power_domain: p1, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}
    - {count: 4, machines_per_rack: 2, power_domain: p2, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}
  - cluster: b
    machine_groups:
    - {count: 2, gpu_model: A100, gpus: 8, cpus: 64, memory_gib: 512}
    - {count: 2, cpus: 64, memory_gib: 512}
  - cluster: c
    mechanism: cells
    machine_groups: [{count: 2, gpu_model: V100, gpus: 8, cpus: 64, memory_gib: 512}]
  - cluster: d
    inference: {series: /tmp/load.csv}
    machine_groups: [{count: 2, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}]
""").fleet


def problems_of(text: str) -> dict[str, str]:
    try:
        requests = parse_requests(text)
    except FormatError as error:
        return {problem.field: problem.description for problem in error.problems}
    return {problem.field: problem.description for problem in check_requests(requests, FLEET)}


def one(capacity: str, cluster: str = "b", others: str = "- cluster: a") -> str:
    return f"requests:\n- cluster: {cluster}\n  capacity: [{{{capacity}}}]\n{others}\n"


def test_a_request_says_what_where_and_how_spread() -> None:
    text = one(
        "gpu_model: H100, gpus: 32, most_per_power_domain: 0.5, survives: power_domain, spares: 8, spare_pool: p"
    )
    assert parse_requests(text) == (
        ClusterRequests(
            ClusterId("b"),
            (
                CapacityRequest(
                    ClusterId("b"),
                    GpuModel("H100"),
                    32,
                    CapacityUnit.GPUS,
                    1.0,
                    0.5,
                    FailureDomain.POWER_DOMAIN,
                    8,
                    "p",
                ),
            ),
        ),
        ClusterRequests(ClusterId("a")),
    )


@pytest.mark.parametrize(
    ("text", "field", "words"),
    [
        (one("gpu_model: H100, machines: -1"), "requests[0].capacity[0].machines", "must be at least 0"),
        (one("gpu_model: H100"), "requests[0].capacity[0]", "must have either machines or gpus"),
        (one("gpu_model: H100, machines: 1, gpus: 8"), "requests[0].capacity[0]", "either machines or gpus"),
        (one("gpus: 8"), "requests[0].capacity[0].gpu_model", "is missing"),
        (one("gpu_model: any, gpus: 8"), "requests[0].capacity[0].gpu_model", "must be a real model"),
        (
            one("gpu_model: H100, machines: 1, most_per_rack: 0"),
            "requests[0].capacity[0].most_per_rack",
            "greater than 0",
        ),
        (one("gpu_model: H100, machines: 1, most_per_rack: 1.5"), "requests[0].capacity[0].most_per_rack", "at most 1"),
        (one("gpu_model: H100, machines: 1, survives: rak"), "requests[0].capacity[0].survives", "'rak'"),
        (
            one("gpu_model: H100, machines: 1, survives: rack, most_per_power_domain: 0.5"),
            "requests[0].capacity[0].survives",
            "say power_domain",
        ),
        (one("gpu_model: H100, machines: 1", "a"), "requests[1].cluster", "cluster a is already at requests[0]"),
        (
            one("gpu_model: H100, machines: 1}, {gpu_model: H100, machines: 2"),
            "requests[0].capacity[1].gpu_model",
            "already at capacity[0]",
        ),
        (
            one(
                "gpu_model: H100, machines: 1, spare_pool: p, survives: rack",
                others="- {cluster: a, capacity: [{gpu_model: H100, machines: 1, spare_pool: p}]}",
            ),
            "requests[1].capacity[0].survives",
            "is none, but rack in another request of pool p",
        ),
        (one("machines: 1", "bb"), "requests[0].cluster", "there is no cluster bb; did you mean b"),
        (one("machines: 1", "c"), "requests[0].cluster", "divided into cells"),
        (one("machines: 1", "d"), "requests[0].cluster", "serves inference"),
        (one("gpu_model: H1000, machines: 1"), "requests[0].capacity[0].gpu_model", "did you mean H100"),
        (one("gpu_model: H100, machines: 9"), "requests[0].capacity[0].machines", "is 9, but region west has 8"),
        (one("gpu_model: H100, gpus: 65"), "requests[0].capacity[0].gpus", "has 64 GPUs of H100"),
        (
            one("gpu_model: H100, machines: 1", others=""),
            "requests[0].capacity[0].machines",
            "the clusters that are named here have 0; name those that are to give machines away, without capacity: a",
        ),
        (
            one("gpu_model: H100, machines: 8, most_per_rack: 0.125"),
            "requests[0].capacity[0].most_per_rack",
            "at most 1 in one, which makes 4 in all 4, and 8 are asked for",
        ),
        (
            one("gpu_model: H100, machines: 6, survives: power_domain"),
            "requests[0].capacity[0].survives",
            "of 2 power domains at most 4 are left when one fails, and 6 are asked for",
        ),
        (
            one("gpu_model: A100, machines: 1, survives: power_domain"),
            "requests[0].capacity[0].survives",
            "rack b-r01 has none; give each rack its power_domain in the fleet",
        ),
    ],
)
def test_what_is_wrong_is_said_of_its_field(text: str, field: str, words: str) -> None:
    found = problems_of(text)
    assert list(found) == [field]
    assert words in found[field]


def test_requests_that_can_be_met_have_no_problem() -> None:
    text = one("gpu_model: H100, machines: 4, most_per_power_domain: 0.5}, {machines: 2, spares: 1")
    assert problems_of(text) == {}


@given(
    st.lists(
        st.builds(
            CapacityRequest,
            st.just(ClusterId("b")),
            st.sampled_from((GpuModel("H100"), GpuModel("A100"))),
            st.integers(0, 50),
            st.sampled_from(CapacityUnit),
            st.sampled_from((0.25, 1.0)),
            st.just(1.0),
            st.sampled_from(FailureDomain),
            st.integers(0, 9),
            st.sampled_from(("", "p")),
        ),
        unique_by=lambda request: request.gpu_model,
    )
)
def test_what_is_written_is_read_back(capacity: list[CapacityRequest]) -> None:
    requests = (ClusterRequests(ClusterId("b"), tuple(capacity)),)
    assert parse_requests(dump_requests(requests)) == requests
