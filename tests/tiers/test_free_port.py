"""A port that is settled early is still there when it is needed."""

from __future__ import annotations

import os
import socket

import pytest

from services.tiers.free_port import PortNotAvailable, free_port, require_port

FIRST_HANDED_OUT = 32_768
"""On Linux, to sockets that bind or connect without a wish."""


def test_a_free_port_is_none_that_others_are_handed_out() -> None:
    port = free_port("127.0.0.1")
    assert 1024 < port < FIRST_HANDED_OUT
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert {free_port("127.0.0.1") for _ in range(20)}.isdisjoint({port})


def test_an_address_that_is_not_ours_has_no_free_port() -> None:
    with pytest.raises(OSError, match="assign"):
        free_port("203.0.113.1")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])  # noqa: S104 - where services may be told to listen
def test_a_port_that_is_taken_is_named_with_what_to_do(host: str) -> None:
    port = free_port("127.0.0.1")
    require_port(host, port)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with pytest.raises(
            PortNotAvailable, match=f"port {port} of {host} is taken by process {os.getpid()} .* --port 0 for any"
        ):
            require_port(host, port)


@pytest.mark.parametrize("host", ["203.0.113.1", "no.such.host.invalid"])
def test_an_address_that_is_not_ours_is_named_with_what_to_do(host: str) -> None:
    with pytest.raises(PortNotAvailable, match=f"cannot listen at {host}: .* --listen-host"):
        require_port(host, 7460)
