"""Submissions a second, durable, with bursts."""

from benchmarks.load.clients import beginning_s
from benchmarks.load.crowd import seen, submit_and_see
from benchmarks.load.memory import memory_by_process_mib
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import live_stack


def run(sizes: Sizes) -> dict[str, object]:
    """Offers `per_s` and bursts, and says how long answers took."""
    with live_stack() as stack:
        results = submit_and_see(
            stack,
            begin_s=beginning_s(),
            clients=sizes.clients,
            per_s=sizes.per_s,
            duration_s=sizes.duration_s,
            burst=sizes.burst,
        )
        return {"submit": seen(results), "memory_mib": memory_by_process_mib(stack.home)}
