"""Clients send a working directory once, in parts, and again when that breaks off."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.client.loopback_server import LoopbackServer
from topmast import AsyncClient, Client, InvalidArgumentError, single_job
from topmast.v1 import workload_pb2


def test_submissions_with_a_folder_name_its_package(server: LoopbackServer, client: Client, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    one = client.submit(tenant="vision", command=["python", "train.py"], gpus=1, working_directory=tmp_path)
    two = client.submit(single_job(tenant="vision", command=["x"]), working_directory=str(tmp_path))
    raw = workload_pb2.WorkloadSpecification(tenant="vision", name="raw")
    many = client.submit_many([raw, single_job(tenant="vision", command=["y"])], working_directory=tmp_path)
    package = client.upload_working_directory(tmp_path)
    named = client.submit(tenant="vision", command=["z"], package=package)
    found = {server.topmast.workloads[each.workload].specification.package for each in (one, two, *many, named)}
    assert found == {package}
    assert raw.package == "", "what belongs to the caller is left alone"
    assert server.packages.uploads == 1
    assert client.get(one.workload).specification.package == package
    without = client.submit(tenant="vision", command=["python", "train.py"])
    assert server.topmast.workloads[without.workload].specification.package == ""


@pytest.mark.parametrize("folder", ["", "a\0b", "nowhere", 3, b"x", ["."]])
def test_what_is_no_folder_is_refused_before_anything_is_sent(
    server: LoopbackServer, client: Client, folder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidArgumentError, match="working_directory: "):
        client.submit(tenant="vision", command=["python", "train.py"], working_directory=folder)
    assert not server.topmast.calls


def test_a_large_folder_goes_in_parts_and_again_when_that_breaks_off(
    server: LoopbackServer, client: Client, tmp_path: Path
) -> None:
    (tmp_path / "weights.bin").write_bytes(os.urandom(5 << 20))
    server.packages.break_off_after = 3
    package = client.upload_working_directory(tmp_path)
    assert len(server.packages.stored[package]) > 5 << 20
    assert server.packages.largest_part_bytes <= 1 << 20
    assert server.packages.uploads == 2


def test_the_client_for_asyncio_does_the_same(server: LoopbackServer, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(2)")

    async def scenario() -> str:
        async with AsyncClient(server.address) as client:
            job = await client.submit(tenant="vision", command=["python", "train.py"], working_directory=tmp_path)
            return job.workload

    workload = asyncio.run(scenario())
    assert set(server.packages.files(server.topmast.workloads[workload].specification.package)) == {"train.py"}
