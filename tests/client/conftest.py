"""What the tests of the client share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.loopback_server import LoopbackServer
from topmast import Client


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def client(server: LoopbackServer) -> Iterator[Client]:
    with Client(server.address) as connected:
        yield connected
