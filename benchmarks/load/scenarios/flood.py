"""What a tenant notices of another one's flood."""

import time

from benchmarks.load.clients import all_of, beginning_s
from benchmarks.load.crowd import seen, start_latency, submit_and_see, submitters
from benchmarks.load.database_figures import starts_of
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import live_stack
from benchmarks.tail_of_queue import BUSY, IDLE, half_busy_fleet
from domain.resources import TaskResources

_PROBES_PER_S = 2.0


def run(sizes: Sizes) -> dict[str, object]:
    """Two submissions a second of one tenant, each of which has room: alone, and while another submits `per_s` that do not fit."""
    with live_stack(half_busy_fleet(), ("floods", "steady")) as stack:
        said: dict[str, object] = {}
        for name in ("alone", "beside"):
            begin_s = beginning_s()
            flood = []
            if name == "beside":
                blocked = TaskResources(gpus=8, gpu_model=BUSY)
                flood = submitters(
                    stack, begin_s=begin_s, clients=sizes.clients, per_s=sizes.per_s, duration_s=sizes.duration_s,
                    tenant="floods", name="flood", run_s=1e6, resources=blocked, seed=2,
                )  # fmt: skip
            results = submit_and_see(
                stack, begin_s=begin_s, clients=1, per_s=_PROBES_PER_S, duration_s=sizes.duration_s,
                tenant="steady", name=name, resources=TaskResources(gpus=1, gpu_model=IDLE),
            )  # fmt: skip
            if flood:
                said["flood"] = seen(all_of(flood))
            time.sleep(sizes.settle_s)
            said[name] = {"submit": seen(results), "start": start_latency(results, starts_of(stack.database_url, name))}
        return said
