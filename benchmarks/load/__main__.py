"""Load tests of a live service: ``python -m benchmarks.load [SCENARIO...]``; one JSON object per scenario."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

import psutil
import ray

from benchmarks.load.scenarios import flood, reads, soak, starts, submissions, watches
from benchmarks.load.sizes import Sizes
from benchmarks.measurement import command_line, peak_rss_mib
from services.runtime.local_ray import start_local_ray

SCENARIOS: Mapping[str, Callable[[Sizes], dict[str, object]]] = {
    "submissions": submissions.run,
    "starts": starts.run,
    "watches": watches.run,
    "reads": reads.run,
    "flood": flood.run,
    "soak": soak.run,
}


def main() -> None:
    """Runs the scenarios that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all without")
    parser.add_argument("--clients", type=int, default=4, help="processes that send requests")
    parser.add_argument("--per-s", type=float, default=100.0, help="requests offered in a second, by all together")
    parser.add_argument("--duration-s", type=float, default=30.0, help="of the load; in watches, of each workload")
    parser.add_argument(
        "--burst", type=int, default=100, help="further submissions at once, every five seconds; 0: none"
    )
    parser.add_argument("--streams", type=int, default=2_000, help="watched at once")
    parser.add_argument("--workloads", type=int, default=100_000, help="there when reads begin")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    parser.add_argument("--settle-s", type=float, default=10.0, help="from the last submission to the count of starts")
    arguments = vars(parser.parse_args())
    names = arguments.pop("scenarios")
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are: {', '.join(SCENARIOS)}")
    wrong = [
        name for name, value in arguments.items() if value < 0 or (value == 0 and name not in {"burst", "settle_s"})
    ]
    if wrong:
        parser.error(f"--{wrong[0].replace('_', '-')} must be above 0")
    for name in names or SCENARIOS:
        print(json.dumps(measured(name, Sizes(**arguments)), allow_nan=False), flush=True)


def measured(name: str, sizes: Sizes) -> dict[str, object]:
    """Runs a scenario on a Ray of the clients' own, and says what came of it, with command and machine."""
    loads = [round(os.getloadavg()[0], 1)]
    start_local_ray(num_cpus=1, include_dashboard=False, log_to_driver=False)
    began = time.monotonic()
    try:
        outcome = SCENARIOS[name](sizes)
    finally:
        ray.shutdown()
    loads.append(round(os.getloadavg()[0], 1))
    return {
        "benchmark": f"load_{name}",
        "command": command_line(),
        "work": asdict(sizes),
        **outcome,
        "took_s": round(time.monotonic() - began, 1),
        "peak_rss_mib": round(peak_rss_mib(), 1),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processors": os.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "load_average_before_and_after": loads,
        },
    }


if __name__ == "__main__":
    main()
