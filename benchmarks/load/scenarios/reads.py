"""Get and list with very many workloads there."""

from benchmarks.load.arrivals import poisson
from benchmarks.load.backlog import submit_backlog
from benchmarks.load.clients import all_of, beginning_s, reading
from benchmarks.load.crowd import seen
from benchmarks.load.memory import memory_by_process_mib
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import Stack, live_stack


def run(sizes: Sizes) -> dict[str, object]:
    """Submits `workloads` that last longer than the run, then gets some and lists pages of 100."""
    with live_stack() as stack:
        names = submit_backlog(stack, sizes.workloads, 8, 1e6)
        return {
            "get": _read(stack, sizes, names, listing=False),
            "list_page": _read(stack, sizes, names, listing=True),
            "memory_mib": memory_by_process_mib(stack.home),
        }


def _read(stack: Stack, sizes: Sizes, names: list[str], *, listing: bool) -> dict[str, object]:
    begin_s = beginning_s()
    readers = []
    for number in range(sizes.clients):
        due_s = poisson(sizes.per_s / sizes.clients, sizes.duration_s, number)
        readers.append(reading.remote(stack.address, stack.token, due_s, begin_s, names[:1000], listing, number))
    return seen(all_of(readers))
