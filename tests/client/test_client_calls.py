"""The client that waits, against a real gRPC server: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import grpc
import pytest
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2

from services.runtime.host_lock import host_lock
from tests.client.loopback_server import LoopbackServer
from topmast import (
    Affinity,
    AlreadyExistsError,
    AppliedFleet,
    CellClusterUsage,
    CellHierarchy,
    CellLevel,
    CellLevelUsage,
    Client,
    Cluster,
    DeadlineError,
    Emulated,
    Fleet,
    InvalidArgumentError,
    JobSpecification,
    Machine,
    ModelProfile,
    NotFoundError,
    OwnedCells,
    PartlySubmittedError,
    PinnedCell,
    PreconditionError,
    Rack,
    Region,
    ResourceExhaustedError,
    RetryPolicy,
    Submission,
    Table,
    TableInput,
    TaskGroup,
    Tenant,
    TenantCellUsage,
    TopmastError,
    UnreachableError,
    Violation,
    VirtualCluster,
    WorkloadSpecification,
    WorkloadState,
)
from topmast.v1 import fleet_pb2, workload_pb2


def emulated(name: str = "load", tenant: str = "vision") -> WorkloadSpecification:
    return WorkloadSpecification(
        tenant=tenant, name=name, jobs=[JobSpecification(gpus=1, emulated=Emulated(duration_s=60.0))]
    )


def test_keywords_become_a_workload_with_one_job(server: LoopbackServer, client: Client) -> None:
    submission = client.submit(
        tenant="vision",
        command=["python", "train.py", "--epochs", "3"],
        gpus=8,
        tasks=2,
        gpu_model="A100",
        environment={"B": "2", "A": "1"},
        tables=["clicks", TableInput("users", fresh=True)],
        retry=RetryPolicy(max_retries=3),
        stop_grace_s=0.0,
    )
    assert submission == Submission("w1", existed=False)
    sent = server.topmast.workloads["w1"].specification
    (job,) = sent.jobs
    assert (sent.name, sent.tenant, job.name) == ("train", "vision", "main")
    assert list(job.command.arguments) == ["python", "train.py", "--epochs", "3"]
    assert (job.tasks, job.resources.gpus, job.resources.gpu_model) == (2, 8, "A100")
    assert not job.resources.HasField("cpus")
    assert [(table.table, table.fresh) for table in sent.tables] == [("clicks", False), ("users", True)]
    assert sent.retry.max_retries == 3
    assert sent.HasField("stop_grace_s")
    assert sent.stop_grace_s == 0.0


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "-u", "/opt/models/fine tune.py"], "fine-tune"),
        (["./run"], "run"),
        (["..."], "workload"),
        (["/bin/sleep", "10"], "sleep"),
    ],
)
def test_a_workload_without_name_is_called_after_its_program(client: Client, command: list[str], name: str) -> None:
    client.submit(tenant="vision", command=command, gpus=1)
    assert client.get("w1").name == name


def test_a_specification_comes_back_as_it_was_sent(client: Client) -> None:
    specification = WorkloadSpecification(
        tenant="vision",
        name="gang",
        jobs=[
            JobSpecification(
                name="train",
                tasks=2,
                max_tasks=4,
                gpus=8,
                gpu_model="A100",
                command=["python", "a.py"],
                scaling={1: 1.0, 2: 1.9, 4: 3.4},
            ),
            JobSpecification(name="feed", cpus=4.0, memory_gib=16.0, python="feed:main", consolidate=True),
            JobSpecification(
                name="skewed", gpus=1, python="a:b", profile=ModelProfile(largest_tensor_mib=3, model_mib=4)
            ),
            JobSpecification(
                name="gang",
                tasks=4,
                gpus=2,
                python="gang:main",
                affinity=Affinity(within="rack", groups=[TaskGroup(tasks=2, count=2, within="machine", hard=False)]),
                pinned_cell="corner",
                yields_to_downgrade=True,
            ),
        ],
        tables=[TableInput("clicks")],
        regions=["eu", "us"],
        labels={"team": "x"},
        retry=RetryPolicy(max_retries=1, backoff_s=5.0, backoff_cap_s=50.0),
        stop_grace_s=12.0,
    )
    workload = client.get(client.submit(specification).workload)
    assert workload.specification == specification
    assert workload.state is WorkloadState.PENDING
    assert workload.ended_s is None
    assert workload.queue_position is not None
    assert workload.queue_position.rank == 1


def test_a_job_says_exactly_one_entry_point(client: Client) -> None:
    with pytest.raises(
        InvalidArgumentError, match="'main': give exactly one of command, python and emulated, not none"
    ):
        client.submit(tenant="vision", gpus=1)
    with pytest.raises(InvalidArgumentError, match="not command and python"):
        client.submit(tenant="vision", command=["a"], python="a:b")
    with pytest.raises(InvalidArgumentError, match="command: must be a list of strings"):
        client.submit(tenant="vision", command="python train.py")


def test_the_same_key_and_body_mean_the_same_workload(client: Client) -> None:
    first = client.submit(emulated(), idempotency_key="k")
    assert client.submit(emulated(), idempotency_key="k") == Submission(first.workload, existed=True)
    with pytest.raises(AlreadyExistsError, match="the key was used with another workload"):
        client.submit(emulated("other"), idempotency_key="k")


def test_without_key_each_call_makes_a_workload(client: Client) -> None:
    assert client.submit(emulated()).workload != client.submit(emulated()).workload


def test_many_workloads_travel_in_batches_of_a_thousand(server: LoopbackServer, client: Client) -> None:
    submissions = client.submit_many(emulated(f"load-{number}") for number in range(2_001))
    assert server.topmast.calls["SubmitWorkloads"] == 3
    assert [submission.workload for submission in submissions] == [f"w{number + 1}" for number in range(2_001)]
    assert client.submit_many([]) == ()


def test_large_workloads_travel_in_smaller_batches(server: LoopbackServer, client: Client) -> None:
    large = JobSpecification(gpus=1, python="m:f", environment={"BLOB": "x" * 1_000_000})
    client.submit_many(WorkloadSpecification(tenant="vision", name="large", jobs=[large]) for _ in range(7))
    assert server.topmast.calls["SubmitWorkloads"] == 3
    assert len(server.topmast.workloads) == 7


def test_many_workloads_need_one_key_each(client: Client) -> None:
    keys = ["a", "b"]
    first = client.submit_many([emulated("a"), emulated("b")], idempotency_keys=keys)
    again = client.submit_many([emulated("a"), emulated("b")], idempotency_keys=keys)
    assert [one.workload for one in again] == [one.workload for one in first]
    assert all(one.existed for one in again)
    with pytest.raises(InvalidArgumentError, match="idempotency_keys: are 2, and there are 1 workloads"):
        client.submit_many([emulated("a")], idempotency_keys=keys)


def test_a_bad_workload_in_a_later_batch_is_named_by_its_place(client: Client) -> None:
    specifications = [emulated(f"load-{number}") for number in range(1_500)]
    specifications[1_234] = emulated("")
    with pytest.raises(PartlySubmittedError, match=r"first 1000 workloads were accepted.*requests\[1234\]") as failed:
        client.submit_many(specifications)
    assert len(failed.value.accepted) == 1_000
    assert failed.value.violations == (Violation("requests[1234].specification.name", "is empty"),)
    assert isinstance(failed.value.__cause__, InvalidArgumentError)


def test_a_bad_workload_in_the_first_batch_means_nothing_was_accepted(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match=r"requests\[1\].specification.name: is empty"):
        client.submit_many([emulated(), emulated("")])


def test_listing_follows_the_pages(server: LoopbackServer, client: Client) -> None:
    client.submit_many(emulated(f"load-{number}") for number in range(1_500))
    assert [one.workload for one in client.list()] == [f"w{number}" for number in range(1_500, 0, -1)]
    assert server.topmast.calls["ListWorkloads"] == 2
    assert [one.workload for one in client.list(limit=2)] == ["w1500", "w1499"]
    page = client.list_page(page_size=2)
    assert [one.workload for one in client.list_page(page_size=2, page_token=page.next_page_token).workloads] == [
        "w1498",
        "w1497",
    ]


def test_a_negative_limit_is_refused(client: Client) -> None:
    with pytest.raises(InvalidArgumentError, match="limit: must be a whole number from 0, or None, not -1"):
        next(client.list(limit=-1))


def test_listing_filters(server: LoopbackServer, client: Client) -> None:
    client.submit_many([emulated("a"), emulated("b", tenant="ads"), emulated("ab")])
    server.do(lambda: server.topmast.move("w3", workload_pb2.WORKLOAD_STATE_FAILED, "out of memory"))
    assert [one.workload for one in client.list(tenant="ads")] == ["w2"]
    assert [one.workload for one in client.list(name_contains="a")] == ["w3", "w1"]
    (failed,) = client.list(states=[WorkloadState.FAILED])
    assert (failed.workload, failed.reason, failed.ended_s) == ("w3", "out of memory", 2_000.0)
    assert [one.workload for one in client.list(submitted_after_s=1_000.0, submitted_before_s=1_002.0)] == ["w2"]
    assert list(client.list(region="nowhere")) == []


def test_queue_and_status_are_returned(client: Client) -> None:
    client.submit_many([emulated("a"), emulated("b", tenant="ads")])
    queue = client.queue()
    assert [(entry.workload, entry.position.rank, entry.gpus) for entry in queue.entries] == [
        ("w1", 1, 1),
        ("w2", 2, 1),
    ]
    assert (queue.queued, queue.scan_pass) == (2, 7)
    assert [entry.workload for entry in client.queue(tenant="ads").entries] == ["w2"]
    status = client.status()
    assert status.workloads == {"PENDING": 2}
    assert [(tier.tier, tier.alive) for tier in status.tiers] == [("global", True), ("regional", False)]
    assert status.regions[0].gpus_in_use == 20


def test_attempts_and_placements_are_returned(server: LoopbackServer, client: Client) -> None:
    client.submit(emulated())
    server.do(lambda: server.topmast.dispatch("w1", {"main": "eu-1"}))
    (attempt,) = client.get("w1").attempts
    assert (attempt.attempt, attempt.region, attempt.started_s, attempt.ended_s) == (1, "eu", 1_501.0, None)
    assert attempt.clusters == ("eu-1",)
    assert attempt.placements[0].gpu_indices == (0, 1)


def test_cancelling_returns_the_state(client: Client) -> None:
    client.submit(emulated())
    assert client.cancel("w1", "no longer needed") is WorkloadState.CANCELLED
    assert client.get("w1").reason == "no longer needed"
    with pytest.raises(PreconditionError) as refused:
        client.cancel("w1")
    assert refused.value.violations == (Violation("w1", "has ended"),)
    assert str(refused.value) == "it cannot be cancelled; w1: has ended"


def test_fleets_and_tenants_are_applied(server: LoopbackServer, client: Client) -> None:
    machine = Machine("m1", "A100", 8, 96.0, 1_024.0)
    fleet = Fleet(
        [Region("eu", [Cluster("eu-1", [Rack("r1", [machine, Machine("m2", cpus=64.0, memory_gib=256.0)])])])],
        [Table("clicks", 10**12, "eu", ["us"])],
    )
    assert client.apply_fleet(fleet) == AppliedFleet(regions=1, clusters=1, machines=2, gpus=8)
    assert server.topmast.fleet.fleet.tables[0].replicas == ["us"]
    assert client.apply_fleet(fleet_pb2.Fleet()) == AppliedFleet(0, 0, 0, 0)
    assert client.apply_tenants([Tenant("vision", 1, {"A100": 16}), fleet_pb2.Tenant(tenant="ads")]) == 2
    vision, ads = server.topmast.tenants.tenants
    assert (vision.gpu_quota["A100"], vision.HasField("cpu_quota"), vision.fair_share_weight) == (16, False, 1.0)
    assert ads.tenant == "ads"


def test_a_fleet_and_its_virtual_clusters_are_applied_together(server: LoopbackServer, client: Client) -> None:
    levels = [CellLevel("gpu"), CellLevel("machine", 8)]
    divided = Cluster("eu-1", [], "cells", [CellHierarchy("a100", "A100", levels, ["m1"])])
    owned = VirtualCluster(
        cluster="eu-1", cells=[OwnedCells("machine", 2, "a100")], pinned=[PinnedCell("fast", "gpu", "m1", 3)]
    )
    short = VirtualCluster(cluster="eu-1", gpus=32, machines=4, gpu_model="A100")
    vision = Tenant("vision", 1, virtual_clusters=[owned, short])
    assert client.apply_fleet(Fleet([Region("eu", [divided])]), [vision]).clusters == 1
    request = server.topmast.fleet
    (cluster,) = request.fleet.regions[0].clusters
    assert (cluster.mechanism, [level.split for level in cluster.cells.hierarchies[0].levels]) == ("cells", [1, 8])
    first, second = request.tenants.tenants[0].virtual_clusters
    assert (first.cells[0].level, first.pinned[0].gpu, second.gpus, second.machines) == ("machine", 3, 32, 4)
    assert client.apply_fleet(Fleet([]), []).clusters == 0
    assert server.topmast.fleet.HasField("tenants"), "no tenants at all is not: tenants as they are"


def test_virtual_clusters_are_shown(client: Client) -> None:
    found = client.virtual_clusters(tenant="vision")
    assert found.clusters == (CellClusterUsage("eu", "eu-1", 16, 8, 0, 4, 4),)
    assert found.tenants == (TenantCellUsage("vision", "eu-1", 16, 8, 0, 0, 4, 3),)
    assert found.levels == (CellLevelUsage("vision", "eu-1", "a100", "machine", "", 8, 2, 1, 1, 0),)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidArgumentError),
        (grpc.StatusCode.OUT_OF_RANGE, InvalidArgumentError),
        (grpc.StatusCode.NOT_FOUND, NotFoundError),
        (grpc.StatusCode.FAILED_PRECONDITION, PreconditionError),
        (grpc.StatusCode.ABORTED, PreconditionError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, ResourceExhaustedError),
        (grpc.StatusCode.INTERNAL, TopmastError),
    ],
)
def test_each_code_has_its_exception(
    server: LoopbackServer, client: Client, code: grpc.StatusCode, kind: type[TopmastError]
) -> None:
    server.do(lambda: server.topmast.fail("GetStatus", code, "as things are"))
    with pytest.raises(TopmastError, match=r"^as things are$") as failed:
        client.status()
    assert type(failed.value) is kind
    assert failed.value.code is code
    assert failed.value.violations == ()


def _advice(seconds: float) -> error_details_pb2.RetryInfo:
    delay = duration_pb2.Duration()
    delay.FromMilliseconds(round(seconds * 1000))
    return error_details_pb2.RetryInfo(retry_delay=delay)


def test_a_server_that_has_too_much_to_do_is_asked_again_when_it_says(server: LoopbackServer, client: Client) -> None:
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    server.do(lambda: server.topmast.fail("GetStatus", busy, "too many calls", _advice(0.001), times=4))
    client.status()
    assert server.do(lambda: server.topmast.calls["GetStatus"]) == 5
    server.do(lambda: server.topmast.fail("GetStatus", busy, "too many calls", _advice(0.001), times=5))
    with pytest.raises(ResourceExhaustedError, match=r"^too many calls \(tried 5 times in 0 s\)$"):
        client.status()


def test_the_advice_when_to_retry_is_passed_on(server: LoopbackServer, client: Client) -> None:
    """Where it would be waited longer than a call may take, nothing is tried again."""
    busy = grpc.StatusCode.RESOURCE_EXHAUSTED
    server.do(lambda: server.topmast.fail("GetStatus", busy, "too many calls", _advice(1_000.5)))
    with pytest.raises(ResourceExhaustedError, match=r"^too many calls$") as failed:
        client.status()
    assert failed.value.retry_after_s == 1_000.5


def test_a_message_that_is_too_large_is_an_error_not_a_crash(client: Client) -> None:
    huge = JobSpecification(gpus=1, python="m:f", environment={"BLOB": "x" * 5_000_000})
    with pytest.raises(ResourceExhaustedError, match="larger than max"):
        client.submit(WorkloadSpecification(tenant="vision", name="huge", jobs=[huge]))


def test_no_answer_in_time_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with Client(address, timeout_s=0.2) as client, pytest.raises(DeadlineError, match="did not answer in time"):
            client.status()


def test_an_address_without_a_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    with (
        Client(address, attempts=1) as client,
        pytest.raises(UnreachableError, match=re.escape(f"Topmast at {address} does not answer")),
    ):
        client.status()


def test_the_address_is_the_argument_the_variable_the_file_or_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def address_of(client: Client) -> str:
        with client:
            return client.address

    monkeypatch.delenv("TOPMAST_ADDRESS", raising=False)
    monkeypatch.delenv("TOPMAST_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    assert address_of(Client()) == "127.0.0.1:7460"
    monkeypatch.setenv("TOPMAST_HOME", str(tmp_path))
    (tmp_path / "address").write_text("127.0.0.1:4001\n")
    assert address_of(Client()) == "127.0.0.1:4001"
    monkeypatch.setenv("TOPMAST_ADDRESS", "127.0.0.1:4002")
    assert address_of(Client()) == "127.0.0.1:4002"
    assert address_of(Client("127.0.0.1:4003")) == "127.0.0.1:4003"


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:99999", "my host:1", ":7460"])
def test_what_is_no_address_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="address: must read host:port"):
        Client(address)
    monkeypatch.setenv("TOPMAST_ADDRESS", address)
    if address:
        with pytest.raises(InvalidArgumentError, match="TOPMAST_ADDRESS: must read host:port"):
            Client()


def test_another_home_s_service_is_never_taken_for_this_one_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TOPMAST_ADDRESS", raising=False)
    monkeypatch.setenv("TOPMAST_HOME", str(tmp_path))
    with pytest.raises(UnreachableError, match=f"no Topmast is up from {tmp_path}"):
        Client()
    (tmp_path / "address").write_text("127.0.0.1:4001\n")
    with host_lock(tmp_path / "host.lock"):
        Client().close()
    # It was killed: whoever listens there now is another.
    with pytest.raises(UnreachableError, match=f"no Topmast is up from {tmp_path}"):
        Client()
    # Another machine's is none of this lock's business.
    (tmp_path / "address").write_text("login-node:4001\n")
    Client().close()


@pytest.mark.parametrize("attempts", [0, 6])
def test_grpc_tries_at_most_five_times(attempts: int) -> None:
    with pytest.raises(InvalidArgumentError, match="attempts: must be a whole number from 1 to 5"):
        Client("127.0.0.1:1", attempts=attempts)


def test_a_closed_client_says_so(server: LoopbackServer) -> None:
    client = Client(server.address)
    client.close()
    with pytest.raises(TopmastError, match="the client is closed"):
        client.status()
