"""A crowd of submitting clients that share one stream of arrivals, and what they saw together."""

from __future__ import annotations

from collections import Counter
from typing import Any

from benchmarks.load.arrivals import poisson, with_bursts
from benchmarks.load.clients import all_of, submitting
from benchmarks.load.histograms import figures, histogram_of, merged
from benchmarks.load.open_loop import LoopResult
from benchmarks.load.stack import Stack
from domain.resources import TaskResources


def submitters(
    stack: Stack,
    *,
    begin_s: float,
    clients: int,
    per_s: float,
    duration_s: float,
    burst: int = 0,
    tenant: str = "load",
    name: str = "load",
    run_s: float = 1.0,
    resources: TaskResources | None = None,
    seed: int = 1,
) -> list[Any]:
    """Starts clients that together submit `per_s` workloads a second, and `burst` at once every five seconds."""
    shares = []
    for number in range(clients):
        due_s = poisson(per_s / clients, duration_s, seed * 1000 + number)
        if burst:
            due_s = with_bursts(due_s, 5.0, max(1, burst // clients), duration_s)
        arguments = (due_s, begin_s, tenant, name, run_s, resources or TaskResources(gpus=1))
        shares.append(submitting.remote(stack.address, stack.token, *arguments))
    return shares


def seen(results: list[LoopResult]) -> dict[str, object]:
    """Latencies of all answers from when requests were due, answers in a second, and refusals by class."""
    answered = sum(len(one.due_s) for one in results)
    last_s = max((one.last_answer_s for one in results), default=0.0)
    return {
        **figures(merged(one.encoded for one in results)),
        "answered_per_s": round(answered / max(last_s, 1e-9), 1),
        "refused": dict(sum((one.refused for one in results), Counter())),
    }


def start_latency(results: list[LoopResult], starts: dict[str, float]) -> dict[str, object]:
    """From when the submission was due to the start of the workload."""
    due = {workload: due_s for one in results for workload, due_s in one.due_s.items()}
    started = {workload: starts[workload] - due_s for workload, due_s in due.items() if workload in starts}
    return {**figures(histogram_of(started.values())), "not_started": len(due) - len(started)}


def submit_and_see(stack: Stack, **wanted: Any) -> list[LoopResult]:
    """Starts such clients and waits until they are done."""
    return all_of(submitters(stack, **wanted))
