"""A Ray of our own runs whatever it is asked to: nobody may reach it from another machine."""

from __future__ import annotations

import ipaddress

import psutil
import pytest

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("ray_address")]


def test_ray_listens_on_loopback_only() -> None:
    import ray

    process_id = ray.get(ray.remote(_process_id).options(num_cpus=0).remote())
    own = psutil.Process()
    listening = {
        (process.pid, address.laddr.ip)
        for process in (own, *own.children(recursive=True))
        for address in process.net_connections("inet")
        if address.status == psutil.CONN_LISTEN
    }
    assert process_id in {process for process, _ in listening}
    assert {ip for _, ip in listening if not _is_loopback(ip)} == set()


def _process_id() -> int:
    import os

    return os.getpid()


def _is_loopback(ip: str) -> bool:
    address = ipaddress.ip_address(ip)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
