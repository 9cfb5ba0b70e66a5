"""Long and steady load: whether memory stays flat, and the database with what is over leaving it."""

import time

from benchmarks.load.clients import all_of, beginning_s
from benchmarks.load.crowd import seen, submitters
from benchmarks.load.database_figures import size_of
from benchmarks.load.memory import memory_by_process_mib
from benchmarks.load.sizes import Sizes
from benchmarks.load.stack import Stack, live_stack

_CLOCK_SPEED = 100.0
"""Of the service's clock: what is younger than a day is never deleted, and a day is then a quarter of an hour."""
_RETENTION = "retention: {older_than_s: 86400.0, every_real_s: 10.0}\n"
_SAMPLES = 60


def run(sizes: Sizes) -> dict[str, object]:
    """Offers `per_s` for `minutes`, with workloads deleted a day of the service's clock after their end. Growth is from the middle of the run to its end:
    what was reached by then has had time to be flat."""
    with live_stack(configuration=_RETENTION, clock_speed=_CLOCK_SPEED) as stack:
        duration_s = sizes.minutes * 60.0
        clients = submitters(
            stack,
            begin_s=beginning_s(),
            clients=sizes.clients,
            per_s=sizes.per_s,
            duration_s=duration_s,
            run_s=_CLOCK_SPEED,
        )
        samples = [_sample(stack)]
        for _ in range(_SAMPLES):
            time.sleep(duration_s / _SAMPLES)
            samples.append(_sample(stack))
        middle, end = samples[len(samples) // 2], samples[-1]
        growth = {name: round(mib - middle[1][name], 1) for name, mib in end[1].items() if name in middle[1]}
        return {
            "submit": seen(all_of(clients)),
            "memory_mib": end[1],
            "memory_growth_second_half_mib": growth,
            "database_mib_workloads_events": [sample[2] for sample in samples[:: len(samples) // 6]],
        }


def _sample(stack: Stack) -> tuple[float, dict[str, float], tuple[float, int, int]]:
    return time.time(), memory_by_process_mib(stack.home), size_of(stack.database_url)
