"""A port that is settled early is still there when it is needed."""

from __future__ import annotations

import asyncio
import os
import socket

import grpc
import pytest

from services.tiers.free_port import PortNotAvailable, free_port, kept_ports, require_port

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
def test_while_a_port_is_kept_servers_of_ours_have_it_one_after_the_other_and_nobody_else(host: str) -> None:
    port = free_port("127.0.0.1")
    with kept_ports(host, [port]):
        for _ in range(2):
            asyncio.run(_serve_a_moment(f"{host}:{port}"))
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                # As a connection takes one that it did not choose.
                other.bind(("127.0.0.1", port))
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


async def _serve_a_moment(address: str) -> None:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_insecure_port(address)
    await server.start()
    second = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    with pytest.raises(RuntimeError, match="Failed to bind"):
        second.add_insecure_port(address)
    await server.stop(None)
    await second.stop(None)


def test_a_port_that_somebody_has_cannot_be_kept() -> None:
    port = free_port("127.0.0.1")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with (
            pytest.raises(PortNotAvailable, match=f"port {port} of 127.0.0.1 is taken"),
            kept_ports("127.0.0.1", [port]),
        ):
            pytest.fail("it is taken")


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
