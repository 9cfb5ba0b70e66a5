"""A link to a cluster manager that refuses it ends when it is cancelled, at whatever moment that is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import numpy as np
import pytest

from domain.identifiers import ClusterId
from services.database.lease_store import Lease
from services.grpc_errors import CanonicalErrors, InvalidArgument
from services.regional_scheduler.cluster_link import ClusterLink
from services.tiers import tier_channel
from tests.deterministic.simulated_network import SimulatedNetwork
from tests.deterministic.simulation import SimulatedProcess, SimulatedWorld
from tests.regional_scheduler_service.test_cluster_link import Context, RefusesChanges
from topmast.v1 import cluster_manager_pb2 as messages
from topmast.v1 import cluster_manager_pb2_grpc

_ADDRESS = "127.0.0.1:7000"
_TURNS = 120
"""Some links are made anew in so many."""


class _Refuses(RefusesChanges):
    """As the manager of a cluster that has lost its region does."""

    async def WatchStatus(
        self, request: messages.WatchStatusRequest, context: Context
    ) -> AsyncIterator[messages.WatchStatusResponse]:
        yield messages.WatchStatusResponse(complete=True)
        raise InvalidArgument.of("fencing_token", "is 1, but no such lease was ever given")


async def _serve(network: SimulatedNetwork) -> None:
    server: Any = network.server([CanonicalErrors()])
    cluster_manager_pb2_grpc.add_ClusterManagerServicer_to_server(_Refuses(), server)
    server.add_insecure_port(_ADDRESS)
    await server.start()


async def _address(_cluster: ClusterId) -> str:
    return _ADDRESS


def _cancelling(linking: asyncio.Task[None], world: SimulatedWorld, at_turn: int) -> Callable[[], None]:
    def cancel_when_it_is_time() -> None:
        if world.turns == at_turn:
            linking.cancel()

    return cancel_when_it_is_time


def test_never_does_a_link_go_on_that_was_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found when a region left the fleet: its session did not end, and its lease was kept for good."""
    monkeypatch.setattr(tier_channel, "own_token_file", lambda: None)
    refused = 0
    for turns in range(1, _TURNS):
        world = SimulatedWorld(np.random.default_rng(1))
        network = SimulatedNetwork(world, np.random.default_rng(2))
        monkeypatch.setattr(grpc.aio, "insecure_channel", network.channel)
        SimulatedProcess(world, "manager").start_loop(_serve(network))
        world.run(world.now_s + 0.1, lambda: None)
        heard: list[object] = []
        link = ClusterLink(ClusterId("west-a"), _address, heard.append, Lease("regional/west", "me", 1))
        _, linking = SimulatedProcess(world, "region").start_loop(link.run())
        world.run(world.now_s + 10.0, _cancelling(linking, world, world.turns + turns))
        assert linking.cancelled(), "it goes on"
        refused += len(heard)
        world.tidy()
        assert not world.broke
    assert refused > _TURNS, "it was made anew again and again"
