"""Whatever a caller says, a method never raises anything but TopmastError, or TypeError for a keyword that it does not have."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tiers.free_port import free_port
from tests.client.loopback_server import LoopbackServer
from topmast import (
    Affinity,
    AsyncClient,
    CellHierarchy,
    CellLevel,
    Client,
    Cluster,
    Emulated,
    Fleet,
    InferenceSide,
    InvalidArgumentError,
    JobSpecification,
    Machine,
    ModelProfile,
    OwnedCells,
    PartlySubmittedError,
    PinnedCell,
    PriorityQuota,
    Rack,
    Region,
    RetryPolicy,
    Table,
    TableInput,
    TaskGroup,
    Tenant,
    TopmastError,
    Violation,
    VirtualCluster,
    WorkloadSpecification,
)
from topmast.requests import WorkloadFilter
from topmast.specifications import SingleJob
from topmast.warehouses import PlacementChoices


class Unshowable:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


HOSTILE: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**31, 2**63, 2**64, 10**400, 1.5, math.nan, math.inf, Decimal("1.5"), 1j),
    *("", " ", "x", "x" * 5_000, "\ud800", "a\0b", "ünï", b"x", b"\xff", bytearray(b"x")),
    *([], [None], [5], ["\ud800"], [[]], ("a", "b"), {"a"}, {}, {"a": 1}, {1: "a"}, {None: None}, {"\ud800": "x"}),
    *(object(), Unshowable(), Unshowable, print, Path("/nonexistent"), range(3), iter(())),
)


def _with(fields: dict[str, Any], usual: dict[str, Any]) -> dict[str, Any]:
    return usual | fields


def _any_job(**fields: Any) -> JobSpecification:
    return JobSpecification(**_with(fields, {"emulated": Emulated(duration_s=1.0)}))


def _submitted(**fields: Any) -> Callable[[Client], object]:
    return lambda client: client.submit(
        WorkloadSpecification(**_with(fields, {"tenant": "vision", "name": "x", "jobs": [_any_job()]}))
    )


def _applied(**fields: Any) -> Callable[[Client], object]:
    return lambda client: client.apply_tenants([Tenant(**_with(fields, {"tenant": "vision", "priority": 1}))])


def _in_fleet(cluster: Callable[[], Cluster]) -> Callable[[Client], object]:
    return lambda client: client.apply_fleet(Fleet([Region("east", [cluster()])]))


MAKERS: dict[str, tuple[type, Callable[[dict[str, Any]], Callable[[Client], object]]]] = {
    "workload": (WorkloadSpecification, lambda fields: _submitted(**fields)),
    "job": (JobSpecification, lambda fields: _submitted(jobs=[_any_job(**fields)])),
    "emulated": (
        Emulated,
        lambda fields: _submitted(jobs=[_any_job(emulated=Emulated(**_with(fields, {"duration_s": 1.0})))]),
    ),
    "profile": (
        ModelProfile,
        lambda fields: _submitted(jobs=[_any_job(profile=ModelProfile(**fields))]),
    ),
    "affinity": (
        Affinity,
        lambda fields: _submitted(jobs=[_any_job(affinity=Affinity(**fields))]),
    ),
    "group": (
        TaskGroup,
        lambda fields: _submitted(jobs=[_any_job(affinity=Affinity(groups=[TaskGroup(**fields)]))]),
    ),
    "table input": (
        TableInput,
        lambda fields: _submitted(tables=[TableInput(**_with(fields, {"table": "t"}))]),
    ),
    "retry": (RetryPolicy, lambda fields: _submitted(retry=RetryPolicy(**fields))),
    "tenant": (Tenant, lambda fields: _applied(**fields)),
    "quota": (
        PriorityQuota,
        lambda fields: _applied(further_quotas={2: PriorityQuota(**fields)}),
    ),
    "virtual cluster": (
        VirtualCluster,
        lambda fields: _applied(virtual_clusters=[VirtualCluster(**_with(fields, {"cluster": "a"}))]),
    ),
    "owned cells": (
        OwnedCells,
        lambda fields: _applied(
            virtual_clusters=[
                VirtualCluster(cluster="a", cells=[OwnedCells(**_with(fields, {"level": "l", "cells": 1}))])
            ]
        ),
    ),
    "pinned cell": (
        PinnedCell,
        lambda fields: _applied(
            virtual_clusters=[
                VirtualCluster(
                    cluster="a", pinned=[PinnedCell(**_with(fields, {"name": "n", "level": "l", "machine": "m"}))]
                )
            ]
        ),
    ),
    "fleet": (Fleet, lambda fields: lambda client: client.apply_fleet(Fleet(**_with(fields, {"regions": []})))),
    "region": (
        Region,
        lambda fields: (
            lambda client: client.apply_fleet(Fleet([Region(**_with(fields, {"region": "r", "clusters": []}))]))
        ),
    ),
    "table": (
        Table,
        lambda fields: (
            lambda client: client.apply_fleet(
                Fleet([], [Table(**_with(fields, {"table": "t", "size_bytes": 1, "home": "r"}))])
            )
        ),
    ),
    "cluster": (Cluster, lambda fields: _in_fleet(lambda: Cluster(**_with(fields, {"cluster": "c", "racks": []})))),
    "rack": (
        Rack,
        lambda fields: _in_fleet(lambda: Cluster("c", [Rack(**_with(fields, {"rack": "r", "machines": []}))])),
    ),
    "machine": (
        Machine,
        lambda fields: _in_fleet(lambda: Cluster("c", [Rack("r", [Machine(**_with(fields, {"machine": "m"}))])])),
    ),
    "hierarchy": (
        CellHierarchy,
        lambda fields: _in_fleet(
            lambda: Cluster(
                "c",
                [],
                hierarchies=[CellHierarchy(**_with(fields, {"hierarchy": "h", "gpu_model": "g", "levels": []}))],
            )
        ),
    ),
    "level": (
        CellLevel,
        lambda fields: _in_fleet(
            lambda: Cluster(
                "c", [], hierarchies=[CellHierarchy("h", "g", [CellLevel(**_with(fields, {"level": "l"}))])]
            )
        ),
    ),
    "inference": (
        InferenceSide,
        lambda fields: _in_fleet(lambda: Cluster("c", [], inference=InferenceSide(**fields))),
    ),
    "choices": (
        PlacementChoices,
        lambda fields: lambda client: next(client.data.make_plan(PlacementChoices(**fields))),
    ),
}

_NOT_CALLED = {"close"}

METHODS = [
    *(
        f"{name}"
        for name, _ in inspect.getmembers(Client, inspect.isfunction)
        if name[0] != "_" and name not in _NOT_CALLED
    ),
    *(
        f"data.{name}"
        for name, _ in inspect.getmembers(type(Client("127.0.0.1:1").data), inspect.isfunction)
        if name[0] != "_"
    ),
]

USUAL: dict[str, Any] = {
    "names": ["m1"],
    "workload": "w1",
    "workloads": ["w1"],
    "job": "main",
    "command": ["true"],
    "tasks": 2,
    "region": "east",
    "requests": "clusters: []",
    "name": "m1",
    "table": "clicks",
    "specification": WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job()]),
    "specifications": [WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job()])],
    "fleet": Fleet([]),
    "tenants": [],
}


@pytest.fixture(scope="module")
def nobody() -> Iterator[Client]:
    """A client of an address where nothing answers: whatever may be asked ends there."""
    with Client(f"127.0.0.1:{free_port('127.0.0.1')}", attempts=1, timeout_s=30.0, patience_s=0.0) as client:
        yield client


def outcome(call: Callable[[], object]) -> object:
    """What a call returns or, of an iterator, yields first; or the TopmastError that it raises. Anything else goes through."""
    try:
        answer = call()
        return next(iter(answer), None) if inspect.isgenerator(answer) else answer
    except TopmastError as error:
        return error


def keywords_of(method: str) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(find(Client("127.0.0.1:1"), method)).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind is not parameter.VAR_KEYWORD}


def find(client: Client, method: str) -> Callable[..., object]:
    found: Any = client
    for name in method.split("."):
        found = getattr(found, name)
    return found  # type: ignore[no-any-return]  # wrong on purpose


def called(client: Client, method: str, said: dict[str, Any], folder: Path) -> object:
    usual = {"folder": folder, **USUAL}
    parameters = keywords_of(method)
    arguments = {
        name: usual[name]
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and name in usual
    } | said
    placed = [
        arguments.pop(name)
        for name, parameter in parameters.items()
        if parameter.kind is parameter.POSITIONAL_ONLY and name in arguments
    ]
    return outcome(lambda: find(client, method)(*placed, **arguments))


@pytest.mark.parametrize("method", METHODS)
def test_no_argument_makes_a_method_raise_anything_else(nobody: Client, method: str, tmp_path: Path) -> None:
    names = list(keywords_of(method))
    if method == "submit":
        names += SingleJob.__annotations__
    if method in ("list", "list_page"):
        names += WorkloadFilter.__annotations__
    tried = 0
    for name in names:
        for value in HOSTILE:
            said = {name: value}
            if method == "submit" and name != "specification":
                said = {"tenant": "vision", "emulated": Emulated(duration_s=1.0)} | said
            if method == "submit" and name == "specification" and value is None:
                continue
            if method == "data.export_folder" and isinstance(value, (str, Path)):
                continue  # it would be made
            called(nobody, method, said, tmp_path)
            tried += 1
    assert tried >= len(names)


@pytest.mark.parametrize("what", MAKERS)
def test_no_field_of_what_is_sent_does(nobody: Client, what: str) -> None:
    kind, maker = MAKERS[what]
    for field in dataclasses.fields(kind):
        for value in HOSTILE:
            outcome(lambda field=field, value=value: maker({field.name: value})(nobody))  # type: ignore[misc]  # wrong on purpose


@pytest.mark.parametrize("field", ["address", "credentials", "timeout_s", "attempts", "patience_s"])
def test_no_argument_of_the_client_itself_does(field: str) -> None:
    for value in HOSTILE:
        for kind in (Client, AsyncClient):
            outcome(lambda kind=kind, value=value: kind(**{"address": "127.0.0.1:1"} | {field: value}))  # type: ignore[misc]  # wrong on purpose


@given(st.data())
def test_no_arguments_together_do(nobody: Client, data: st.DataObject) -> None:
    method = data.draw(st.sampled_from([name for name in METHODS if not name.startswith("data.")]))
    names = sorted(keywords_of(method).keys() - {"specification"})
    said = data.draw(st.dictionaries(st.sampled_from(names), st.sampled_from(HOSTILE))) if names else {}
    if method == "submit":
        said = {"tenant": data.draw(st.sampled_from(HOSTILE))} | said
    called(nobody, method, said, Path())


def test_the_same_holds_on_an_event_loop() -> None:
    async def ask() -> None:
        async with AsyncClient(f"127.0.0.1:{free_port('127.0.0.1')}", attempts=1, patience_s=0.0) as client:
            for value in HOSTILE:
                with pytest.raises(TopmastError):
                    await client.get(value)
                with pytest.raises(TopmastError):
                    await client.submit(tenant="vision", command=["x"], gpus=value, name=value)
                with pytest.raises(TopmastError):
                    await anext(client.list(states=value, tenant=value))

    asyncio.run(ask())


# ------------------------------------------------------------ what is said about it


def test_unknown_keywords_are_refused_with_the_name_that_was_meant(client: Client) -> None:
    with pytest.raises(TypeError, match=r"list\(\) has no keyword 'tenat'; did you mean 'tenant'\?"):
        next(client.list(tenat="x"))  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(TypeError, match="no keyword 'state'; did you mean 'states'"):
        client.list_page(state=[])  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(TypeError, match="no keyword 'gpumodel'; did you mean 'gpu_model'"):
        client.submit(tenant="x", command=["x"], gpumodel="A100")  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="no keyword 'zzz'; it has across_clusters, affinity"):
        client.submit(tenant="x", command=["x"], zzz=1)  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="needs the keyword 'tenant'"):
        client.submit(command=["x"])  # type: ignore[call-overload]  # wrong on purpose
    with pytest.raises(TypeError, match="a specification or the keywords of a job, not both: gpus"):
        client.submit(WorkloadSpecification(tenant="x", jobs=[]), gpus=1)  # type: ignore[call-overload]  # wrong on purpose


def test_a_wrong_value_is_named_by_its_field(server: LoopbackServer, client: Client) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        client.submit(tenant="vision", command=["train"], gpus="eight", memory_gib="much")  # type: ignore[call-overload]  # wrong on purpose
    assert refused.value.violations == (
        Violation(
            "specification.jobs[0].resources.gpus",
            "must be a whole number, not 'eight'",
        ),
        Violation("specification.jobs[0].resources.memory_gib", "must be a number, not 'much'"),
    )
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"command": ["a", 5]}, r"command\[1\]: must be text, not 5"),
        ({"environment": {"A": 1}}, r"jobs\[0\].environment\['A'\]: its value must be text, not 1"),
        ({"environment": "A=1"}, r"jobs\[0\].environment: must be a mapping, not 'A=1'"),
        ({"labels": {"a": "\ud800"}}, r"labels\['a'\]: its value has half of a surrogate pair"),
        ({"regions": "east"}, "regions: must be a list of strings, not the one string 'east'"),
        ({"tables": [5]}, r"tables\[0\]: must be a TableInput, not 5"),
        ({"tables": "clicks"}, "tables: must be a list, not 'clicks'"),
        ({"tasks": 10**12}, r"jobs\[0\].tasks: is 1000000000000; at most 2147483647 goes"),
        ({"retry": 3}, "retry: must be a RetryPolicy, not 3"),
        ({"scaling": {"two": 2.0}}, r"tasks: must be a whole number, not 'two'"),
        ({"idempotency_key": ""}, "idempotency_key: is empty"),
    ]
    for said, sentence in wrong:
        with pytest.raises(InvalidArgumentError, match=sentence):
            client.submit(**{"tenant": "vision", "command": ["train"]} | said)
    assert not server.topmast.workloads
    with pytest.raises(InvalidArgumentError, match=r"states\[0\]: 'runing' is no state; there are PENDING"):
        next(client.list(states=["runing"]))  # type: ignore[list-item]  # wrong on purpose
    machines = [Machine("m1"), Machine("m2", gpus=1.5)]  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidArgumentError, match=r"fleet.regions\[0\].clusters\[0\].racks\[0\].machines\[1\].gpus"):
        client.apply_fleet(Fleet([Region("east", [Cluster("a", [Rack("r", machines)])])]))
    with pytest.raises(InvalidArgumentError, match="folder: there is no folder '/nonexistent'"):
        client.data.import_folder("/nonexistent")


def test_a_list_with_a_wrong_workload_is_not_begun(server: LoopbackServer, client: Client) -> None:
    good = WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job()])
    bad = WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job(tasks=2**40)])
    with pytest.raises(InvalidArgumentError, match=r"requests\[1500\].specification.jobs\[0\].tasks"):
        client.submit_many([good] * 1_500 + [bad])
    with pytest.raises(InvalidArgumentError, match="idempotency_keys: are 1, and there are more workloads"):
        client.submit_many([good] * 1_500, idempotency_keys=["a"])
    assert not server.topmast.workloads


def test_what_a_stream_of_workloads_has_wrong_is_counted_from_its_first(client: Client) -> None:
    good = WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job()])
    bad = WorkloadSpecification(tenant="vision", name="x", jobs=[_any_job(tasks=2**40)])
    with pytest.raises(PartlySubmittedError, match=r"requests\[2100\].specification.jobs\[0\].tasks") as failed:
        client.submit_many(iter([good] * 2_100 + [bad]))
    assert len(failed.value.accepted) == 2_000


def test_the_sentence_counts_as_the_violations_do(client: Client) -> None:
    """Also where the server's own sentence speaks of its batch."""
    specifications = [
        WorkloadSpecification(tenant="vision", name=f"n{number}", jobs=[_any_job()]) for number in range(1_010)
    ]
    specifications[1_003] = WorkloadSpecification(tenant="vision", name="", jobs=[_any_job()])
    with pytest.raises(PartlySubmittedError) as failed:
        client.submit_many(specifications)
    assert "requests[1003].specification.name: is empty" in str(failed.value)
    assert "requests[3]" not in str(failed.value)
