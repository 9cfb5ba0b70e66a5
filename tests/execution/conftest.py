"""A Ray of our own for the tests of this folder, with emulated machines m0 to m3."""

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from domain.identifiers import ClusterId, MachineId

MACHINES = tuple(MachineId(f"m{number}") for number in range(4))


@pytest.fixture(scope="package")
def ray_address() -> Iterator[str]:
    """Where a local Ray answers that offers MACHINES; it ends with the last test of this folder."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from services.execution.runner_pool import NAMESPACE, TASK_SLOTS, machine_resource
    from services.runtime.local_ray import start_local_ray

    start_local_ray(
        num_cpus=2,
        resources={machine_resource(machine): TASK_SLOTS for machine in MACHINES},
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        namespace=NAMESPACE,
        log_to_driver=False,
        logging_level=logging.WARNING,
        _node_ip_address="127.0.0.1",
    )
    try:
        yield str(ray.get_runtime_context().gcs_address)
    finally:
        ray.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """TOPMAST_HOME of one test; what it leaves running on Ray is killed."""
    directory = tmp_path / "home"
    yield directory
    if "ray" in sys.modules:
        clear_away(cluster_of(directory))


def cluster_of(home: Path) -> ClusterId:
    """Every test has a cluster of its own."""
    return ClusterId(home.parent.name)


def clear_away(cluster: ClusterId) -> None:
    """Kills every runner of a cluster, with whatever runs in it."""
    import ray

    from services.execution.runner_pool import RunnerPool

    if ray.is_initialized():
        pool = RunnerPool(cluster)
        asyncio.run(pool.remove_all_but(()))
        pool.close()
