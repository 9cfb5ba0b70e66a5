"""Runs of a document, side by side in processes; what is measured comes back in the order of the cases."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from domain.events import JsonValue

CaseT = TypeVar("CaseT")


def run_side_by_side(
    run: Callable[[CaseT], dict[str, JsonValue]], cases: Sequence[CaseT], processes: int
) -> list[dict[str, JsonValue]]:
    """What `run`, a function of a module, measures of each case; says on standard error which are done.

    Cases begin in their order, so the long ones should come first.
    """
    begun_s = time.perf_counter()
    done: dict[int, dict[str, JsonValue]] = {}

    def ended(position: int, measured: dict[str, JsonValue]) -> None:
        done[position] = measured
        passed_s = time.perf_counter() - begun_s
        print(f"{len(done)} of {len(cases)}: {cases[position]}, {passed_s:.0f} s", file=sys.stderr, flush=True)

    if processes <= 1:
        for position, case in enumerate(cases):
            ended(position, run(case))
    else:
        with ProcessPoolExecutor(processes) as pool:
            waiting = {pool.submit(run, case): position for position, case in enumerate(cases)}
            for future in as_completed(waiting):
                ended(waiting[future], future.result())
    return [done[position] for position in range(len(cases))]
