import asyncio
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.identifiers import ClusterId
from domain.inference import FORECASTS, RECLAIMING_POLICIES, InferenceDemand, InferenceSide
from regional_scheduler.forecasting import FORECASTERS
from regional_scheduler.forecasting.history import LoadSample
from regional_scheduler.loan_decision import LoanDecision, decide_loan
from regional_scheduler.reclaiming import RECLAIMING
from services.clock import SystemClock
from services.inference.demand import LendingCluster, NoDemand, checked_demand
from services.inference.ray_serve import DeploymentNeed, MachineSize, ReplicaPart, machines_for
from services.inference.remote import RemoteDemand
from services.inference.series import RepeatedSeries, SeriesDemand
from services.inference.server import inference_server
from simulator.inputs.loans import UtilisationPoint
from tests.examples import examples

ABOUT = LendingCluster(ClusterId("serving"), 10, 4, 1)
SIDE = InferenceSide("localhost:1", headroom=0.1, forecast="persistence")


@pytest.mark.parametrize(
    ("demand", "says"),
    [
        (InferenceDemand(-1), "it needs -1 machines; that must be 0 or more"),
        (InferenceDemand(1, 11), "it lends 11 machines, but the cluster has 10; it may lend 0 to 10"),
        (InferenceDemand(1, -1), "it lends -1 machines"),
        (InferenceDemand(1, None, math.nan), "back within nan s"),
        (InferenceDemand(1, None, -1.0), "back within -1 s"),
    ],
)
def test_what_cannot_be_is_refused(demand: InferenceDemand, says: str) -> None:
    with pytest.raises(NoDemand, match=says):
        checked_demand(demand, 10)


def test_what_can_be_is_not() -> None:
    for demand in (InferenceDemand(0), InferenceDemand(99, 10, 0.0)):
        assert checked_demand(demand, 10) == demand


def test_names_of_files_are_those_of_the_registries() -> None:
    assert sorted(FORECASTERS) == sorted(FORECASTS)
    assert sorted(RECLAIMING) == sorted(RECLAIMING_POLICIES)


def test_lends_what_is_left_beside_need_and_headroom() -> None:
    assert decide_loan(InferenceDemand(4), 10, SIDE, [], 300.0) == LoanDecision(0.4, 0.4, 5, 0)
    assert decide_loan(InferenceDemand(4, 2), 10, SIDE, [], 300.0) == LoanDecision(0.4, 0.4, 2, 0)


def test_more_than_there_are_is_a_shortfall() -> None:
    past = [LoadSample(0.0, 0.5)]
    assert decide_loan(InferenceDemand(13), 10, SIDE, past, 300.0) == LoanDecision(1.0, 1.0, 0, 3)


def test_a_cluster_without_machines_lends_nothing() -> None:
    assert decide_loan(InferenceDemand(0), 0, SIDE, [], 300.0) == LoanDecision(0.0, 0.0, 0, 0)
    assert decide_loan(InferenceDemand(2), 0, SIDE, [], 300.0) == LoanDecision(1.0, 1.0, 0, 2)


def test_a_series_repeats(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("t_s,busy_pod_fraction\n0,0.1\n300,0.55\n600,0\n", encoding="utf-8")
    source = SeriesDemand(file, 60.0)
    needs = [
        asyncio.run(source.demand(ABOUT, now)).needed_machines for now in (0.0, 299.0, 300.0, 600.0, 900.0, 1_200.0)
    ]
    assert needs == [1, 1, 6, 0, 1, 6]
    assert RepeatedSeries([UtilisationPoint(0.0, 0.5)]).load_at(1e9) == 0.5


def test_a_series_that_is_none_says_why(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    for content in (None, "t_s,busy_pod_fraction\n0,nan\n"):
        if content is not None:
            file.write_text(content, encoding="utf-8")
        with pytest.raises(NoDemand, match="cannot be played"):
            asyncio.run(SeriesDemand(file).demand(ABOUT, 0.0))


def test_is_asked_over_the_wire(tmp_path: Path) -> None:
    file = tmp_path / "load.csv"
    file.write_text("t_s,busy_pod_fraction\n0,0.25\n", encoding="utf-8")

    async def scenario() -> None:
        server = inference_server(SeriesDemand(file, 60.0), SystemClock())
        port = await server.start("127.0.0.1:0")
        remote = RemoteDemand(f"127.0.0.1:{port}")
        assert await remote.demand(ABOUT, 0.0) == InferenceDemand(3, None, 60.0)
        file.unlink()
        await server.stop(0.0)
        with pytest.raises(NoDemand, match="does not answer"):
            await remote.demand(ABOUT, 0.0)
        await remote.close()

    asyncio.run(scenario())


class SaysNul:
    """Does not say what it needs, and why with a character that cannot be stored."""

    async def demand(self, about: LendingCluster, now: float) -> InferenceDemand:
        raise NoDemand("a\0b")

    async def close(self) -> None:
        pass


def test_what_cannot_be_stored_is_not_passed_on() -> None:
    async def scenario() -> None:
        server = inference_server(SaysNul(), SystemClock())
        port = await server.start("127.0.0.1:0")
        remote = RemoteDemand(f"127.0.0.1:{port}")
        with pytest.raises(NoDemand, match="a\N{REPLACEMENT CHARACTER}b"):
            await remote.demand(ABOUT, 0.0)
        await remote.close()
        await server.stop(0.0)

    asyncio.run(scenario())


def need(name: str, replicas: int, gpus: float, cpus: float) -> DeploymentNeed:
    return DeploymentNeed(name, replicas, (ReplicaPart(gpus, cpus),))


def test_replicas_fill_machines_first_fit() -> None:
    size = MachineSize(8, 64.0)
    assert machines_for([], size) == 0
    assert machines_for([need("llm", 3, 4, 8), need("small", 8, 0.5, 1)], size) == 2
    assert machines_for([need("llm", 3, 5, 8), need("other", 3, 4, 8)], size) == 5
    assert machines_for([need("router", 65, 0, 1)], size) == 2
    with pytest.raises(NoDemand, match="a replica of llm takes 16 GPUs and 1 CPUs, but a machine has 8 and 64"):
        machines_for([need("llm", 1, 16, 1)], size)


def test_parts_of_a_replica_share_machines_unless_they_must_not() -> None:
    size, parts = MachineSize(8, 64.0), (ReplicaPart(2, 1), ReplicaPart(2, 1), ReplicaPart(2, 1))
    assert machines_for([DeploymentNeed("spread", 2, parts)], size) == 2
    assert machines_for([DeploymentNeed("apart", 2, parts, apart=True)], size) == 3
    assert machines_for([DeploymentNeed("apart", 5, parts, apart=True)], size) == 6


@settings(max_examples=examples(100))
@given(
    st.lists(
        st.builds(
            DeploymentNeed,
            st.sampled_from(["a", "b", "c"]),
            st.integers(0, 5),
            st.lists(
                st.builds(ReplicaPart, st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.sampled_from([0.5, 1.0, 8.0])),
                min_size=1,
                max_size=3,
            ).map(tuple),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_never_fewer_machines_than_replicas_fill_nor_more_than_one_for_each_part(needs: list[DeploymentNeed]) -> None:
    size = MachineSize(4, 8.0)
    found = machines_for(needs, size)
    assert found >= sum(one.replicas * part.gpus for one in needs for part in one.parts) / size.gpus - 1e-6
    assert found >= sum(one.replicas * part.cpus for one in needs for part in one.parts) / size.cpus - 1e-6
    assert found >= max((len(one.parts) for one in needs if one.apart and one.replicas), default=0)
    assert found <= sum(one.replicas * len(one.parts) for one in needs)
