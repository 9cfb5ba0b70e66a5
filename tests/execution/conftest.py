"""A Ray of our own for the tests of this folder, with emulated machines m0 to m3."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.identifiers import MachineId

MACHINES = tuple(MachineId(f"m{number}") for number in range(4))


@pytest.fixture(scope="package")
def ray_address() -> Iterator[str]:
    """Where a local Ray answers that offers MACHINES; it ends with the last test of this folder."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from services.execution.runner_pool import NAMESPACE, machine_resources

    context = ray.init(
        num_cpus=2,
        resources=machine_resources(MACHINES),
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level="warning",
        _node_ip_address="127.0.0.1",
    )
    try:
        yield str(context.address_info["gcs_address"])
    finally:
        ray.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """TOPMAST_HOME of one test."""
    return tmp_path / "home"
