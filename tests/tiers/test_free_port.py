"""A port that is settled early is still there when it is needed."""

from __future__ import annotations

import socket

import pytest

from services.tiers.free_port import free_port

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
