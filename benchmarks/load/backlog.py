"""Many workloads at once, in batches, before anything is measured."""

from benchmarks.load.stack import Stack
from benchmarks.tail_of_queue import one_task
from domain.identifiers import TenantId
from domain.resources import TaskResources
from services.wire.workloads import specification_to_proto
from topmast import Client

_BATCH = 1_000


def submit_backlog(stack: Stack, count: int, gpus: int, run_s: float, tenant: str = "load") -> list[str]:
    """Submits `count` emulated workloads that run for `run_s`; returns their names."""
    specification = specification_to_proto(one_task("backlog", TenantId(tenant), TaskResources(gpus=gpus), run_s))
    names: list[str] = []
    with Client(stack.address, token=stack.token) as client:
        while len(names) < count:
            batch = [specification] * min(_BATCH, count - len(names))
            names.extend(one.workload for one in client.submit_many(batch))
    return names
