"""Many open watch streams: how soon they open, and how late they tell an end."""

from benchmarks.load.backlog import submit_backlog
from benchmarks.load.clients import all_of, watching
from benchmarks.load.histograms import figures, merged
from benchmarks.load.memory import memory_by_process_mib
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import live_stack


def run(sizes: Sizes) -> dict[str, object]:
    """Watches `streams` workloads, all of which run until all streams are open, and then end."""
    with live_stack() as stack:
        names = submit_backlog(stack, sizes.streams, 1, sizes.duration_s)
        shares = [names[number :: sizes.clients] for number in range(sizes.clients)]
        per_s = sizes.per_s / sizes.clients
        results = all_of([watching.remote(stack.address, stack.token, share, per_s) for share in shares])
        return {
            "first_message": figures(merged(opened for opened, _, _ in results)),
            "end_told": figures(merged(late for _, late, _ in results)),
            "ended": sum(count for _, _, count in results),
            "memory_mib": memory_by_process_mib(stack.home),
        }
