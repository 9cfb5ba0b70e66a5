"""Requests for machines beside clusters that are divided into cells: refused where one is named, and never applied in part."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from data_placement.machine_assignment.region_machines import RegionMachines
from domain.fleet import Fleet
from formats.capacity_requests_file import parse_requests
from formats.fleet_file import parse_fleet_file
from services.database import fleet_store, machine_move_store
from services.database.engine import Database
from services.global_scheduler.machine_assignment_look import apply_requests
from services.grpc_errors import InvalidArgument
from services.machine_decision import Question, decided


def _fleet(mechanism_of_b: str = "packing") -> Fleet:
    group = "machine_groups: [{count: 3, gpu_model: H100, gpus: 8, cpus: 64, memory_gib: 512}]"
    return parse_fleet_file(f"""
regions:
- region: west
  clusters:
  - {{cluster: a, {group}}}
  - {{cluster: b, mechanism: {mechanism_of_b}, {group}}}
  - {{cluster: c, mechanism: cells, {group}}}
- region: east
  clusters:
  - {{cluster: e, {group}}}
""").fleet


_WEST = "- {cluster: a, capacity: [{gpu_model: H100, machines: 5}]}\n- {cluster: b}\n"
_EAST = "- {cluster: e, capacity: [{gpu_model: H100, machines: 2}]}\n"
_DIVIDED = "- {cluster: c, capacity: [{gpu_model: H100, machines: 1}]}\n"


def test_requests_that_name_a_divided_cluster_change_nothing_anywhere(database_url: str) -> None:
    async def run() -> None:
        async with Database(database_url) as database:
            await database.run(partial(fleet_store.apply_fleet, fleet=_fleet()))
            apply = partial(apply_requests, only="", now=1.0)
            with pytest.raises(InvalidArgument) as refused:
                await database.run(partial(apply, text=f"requests:\n{_EAST}{_WEST}{_DIVIDED}"))
            assert str(refused.value) == (
                "requests[3].cluster: cluster c is divided into cells, on which its virtual clusters count: machines neither"
                " leave it nor come to it; leave it out"
            )
            assert await database.run(machine_move_store.load_requests) == {}
            assert await database.run(partial(apply, text=f"requests:\n{_EAST}{_WEST}")) == ["west", "east"]
            assert (await database.run(machine_move_store.load_requests)).keys() == {"west", "east"}

    asyncio.run(run())


@pytest.mark.parametrize("mechanism_of_b", ["packing", "cells"])
def test_machines_of_divided_clusters_never_move(mechanism_of_b: str) -> None:
    """Also where a cluster has been divided since its requests were applied."""
    region = _fleet(mechanism_of_b).regions[0]
    decision = decided(Question(RegionMachines(region), 0), parse_requests(f"requests:\n{_WEST}"), 5.0)
    moved = {(move.from_cluster, move.to_cluster) for move in decision.assignment.moves}
    assert moved == ({("b", "a")} if mechanism_of_b == "packing" else set())
