"""Workloads and events are chosen by the labels of workloads, which an index serves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import grpc

from services.wire.workloads import specification_to_proto
from tests.database.small_world import specification
from tests.global_scheduler_service.service import Service, in_service, refused, violated_fields
from topmast.label_conditions import label_conditions
from topmast.v1 import global_scheduler_pb2 as messages

LABELS: tuple[Mapping[str, str], ...] = (
    {"sweep": "a", "team": "x"},
    {"sweep": "b", "team": "x"},
    {"sweep": "b"},
    {},
)
CHOSEN: tuple[tuple[list[str], set[int]], ...] = (
    (["sweep=b"], {1, 2}),
    (["sweep=b", "team=x"], {1}),
    (["sweep!=b"], {0, 3}),
    (["sweep"], {0, 1, 2}),
    (["!team"], {2, 3}),
    (["sweep", "team!=x"], {2}),
    (["sweep=none"], set()),
)


async def submitted(service: Service) -> list[str]:
    return [
        (
            await service.submit(specification_to_proto(replace(specification(), labels=tuple(sorted(labels.items())))))
        ).workload
        for labels in LABELS
    ]


def test_lists_and_events_are_chosen_by_labels(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await submitted(service)
        for texts, places in CHOSEN:
            wanted = {names[place] for place in places}
            listed = await service.stub.ListWorkloads(
                messages.ListWorkloadsRequest(labels=label_conditions(texts), page_size=10)
            )
            assert {one.workload for one in listed.workloads} == wanted, texts
            told = service.stub.WatchEvents(
                messages.WatchEventsRequest(labels=label_conditions(texts), events=["submitted"])
            )
            assert {event.workload async for event in told} == wanted, texts

    in_service(database_url, scenario)


def test_a_change_of_labels_changes_what_is_chosen(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await submitted(service)
        await service.stub.ChangeWorkloads(
            messages.ChangeWorkloadsRequest(workloads=[names[0]], labels={"sweep": "c"}, without_labels=["team"])
        )
        for texts, wanted in ((["sweep=c"], {names[0]}), (["team"], {names[1]}), (["sweep=a"], set())):
            listed = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(labels=label_conditions(texts)))
            assert {one.workload for one in listed.workloads} == wanted, texts

    in_service(database_url, scenario)


def test_pages_of_a_choice_belong_to_it(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        names = await submitted(service)
        chosen = label_conditions(["sweep"])
        first = await service.stub.ListWorkloads(messages.ListWorkloadsRequest(labels=chosen, page_size=2))
        second = await service.stub.ListWorkloads(
            messages.ListWorkloadsRequest(labels=chosen, page_size=2, page_token=first.next_page_token)
        )
        assert [one.workload for one in (*first.workloads, *second.workloads)] == [names[2], names[1], names[0]]
        error = await refused(
            service.stub.ListWorkloads(messages.ListWorkloadsRequest(page_token=first.next_page_token))
        )
        assert violated_fields(error) == ["page_token"]

    in_service(database_url, scenario)


def test_conditions_that_cannot_be_are_refused(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        bad = [
            messages.LabelCondition(key=""),
            messages.LabelCondition(key="a b"),
            messages.LabelCondition(key="a", value="\0"),
        ]
        error = await refused(service.stub.ListWorkloads(messages.ListWorkloadsRequest(labels=bad)))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert violated_fields(error) == ["labels[0].key", "labels[1].key", "labels[2].value"]
        many = [messages.LabelCondition(key="a")] * 17
        error = await refused(service.stub.ListWorkloads(messages.ListWorkloadsRequest(labels=many)))
        assert violated_fields(error) == ["labels"]

    in_service(database_url, scenario)


def test_an_index_serves_a_rare_label(database_url: str) -> None:
    async def scenario(service: Service) -> None:
        await submitted(service)
        await service.rows(
            """INSERT INTO workload_labels SELECT 'w' || n, 'sweep', 'z' || n FROM generate_series(1, 20000) AS n
               RETURNING workload"""
        )
        async with service.database.transaction() as connection:
            await connection.execute("ANALYZE workload_labels")
        plan = await service.rows("EXPLAIN SELECT workload FROM workload_labels WHERE key = 'sweep' AND value = 'z77'")
        assert any("workload_labels_value" in str(line) for (line,) in plan), plan

    in_service(database_url, scenario)
