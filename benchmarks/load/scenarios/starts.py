"""From when a submission was due to the start of its workload."""

import time

from benchmarks.load.clients import beginning_s
from benchmarks.load.crowd import seen, start_latency, submit_and_see
from benchmarks.load.database_figures import starts_of
from benchmarks.load.memory import memory_by_process_mib
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import live_stack


def run(sizes: Sizes) -> dict[str, object]:
    """Offers workloads of one second to a fleet that has room, and says when they started."""
    with live_stack() as stack:
        results = submit_and_see(
            stack, begin_s=beginning_s(), clients=sizes.clients, per_s=sizes.per_s, duration_s=sizes.duration_s
        )
        time.sleep(sizes.settle_s)
        started = start_latency(results, starts_of(stack.database_url, "load"))
        return {"submit": seen(results), "start": started, "memory_mib": memory_by_process_mib(stack.home)}
