"""Queues whose mean waits are known in closed form.

A machine of c GPUs with workloads of one GPU each, first in first out, is a queue with c servers. Where a thousand
arrivals are enough for a tight bound, the simulator is held against the formula itself. Where they are not (long queues,
great variance), it is held against the recursion of Kiefer and Wolfowitz, wait by wait, and the recursion, which is quick
enough for very many arrivals, against the formula. Bounds are those of the means of independent replications.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import pytest
from numpy.typing import NDArray

from domain.identifiers import ANY_GPU_MODEL, TenantId
from domain.resources import Quota
from domain.tenant import Tenant
from simulator.engine.settings import SimulationSettings
from simulator.engine.simulation import simulate
from simulator.engine.simulation_input import SimulationInput
from simulator.policies.policy import Policy
from simulator.policies.registry import policies
from simulator.results.conservation import check_conservation
from simulator.results.run_record import AttemptEnd, RunRecord
from tests.simulator.engine.checked_run import NO_COSTS, UNLIMITED, one_region, row, unlimited

Reals = NDArray[np.float64]
REPLICATIONS = 8
ARRIVALS = 1_200
MANY_ARRIVALS = 120_000
WARM_UP = 0.1
"""Of the arrivals: an empty queue at the beginning is not what the formulas are about."""
STANDARD_ERRORS = 4.0
MEAN_SERVICE_S = 100.0
TWO_WEIGHTS = (0.9, 0.1)
TWO_MEANS_S = (50.0, 550.0)
"""A hyperexponential distribution with the same mean: squared coefficient of variation 5.05."""


def erlang_c(servers: int, load: float) -> float:
    """The probability that an arrival waits in M/M/c, where each server is busy `load` of the time (Erlang 1917)."""
    offered = servers * load
    busy = offered**servers / math.factorial(servers) / (1 - load)
    return busy / (sum(offered**n / math.factorial(n) for n in range(servers)) + busy)


def mean_wait_m_m_c_s(servers: int, load: float) -> float:
    return erlang_c(servers, load) * MEAN_SERVICE_S / (servers * (1 - load))


def mean_wait_m_g_1_s(load: float, mean_s: float, mean_square_s2: float) -> float:
    """Pollaczek and Khinchine: λ E[S²] / 2 (1 - ρ)."""
    return load / mean_s * mean_square_s2 / (2 * (1 - load))


def simulated(
    policy: Policy,
    servers: int,
    arrivals_s: Reals,
    services_s: Reals,
    seed: int,
    owners: Sequence[str] | None = None,
    settings: SimulationSettings = NO_COSTS,
    tenants: tuple[Tenant, ...] | None = None,
) -> RunRecord:
    of = owners if owners is not None else ["t"] * len(arrivals_s)
    rows = [
        row(f"w{number:06}", at, runs, tenant=owner)
        for number, (at, runs, owner) in enumerate(zip(arrivals_s.tolist(), services_s.tolist(), of, strict=True))
    ]
    given = SimulationInput("formula", rows, one_region(1, servers), tenants or unlimited(rows))
    record = simulate(given, policy, settings, seed)
    check_conservation(record)
    return record


def mean_wait_s(record: RunRecord) -> float:
    """Without the warm-up. Nobody who is evicted waits only once, so: time in the system less the work."""
    first = int(WARM_UP * len(record.workloads))
    stay_s = record.workloads.ended_s - record.workloads.submitted_s - record.workloads.work_s
    return float(stay_s[first:].mean())


def assert_near(means: list[float], expected: float, greatest_error: float) -> None:
    """The mean of the replications is within its own standard errors of what the formula says; and they are small."""
    error = float(np.std(means, ddof=1)) / math.sqrt(len(means))
    assert error < greatest_error * expected, f"too noisy to show anything: {error:.3g} of {expected:.3g}"
    assert abs(float(np.mean(means)) - expected) < STANDARD_ERRORS * error, (np.mean(means), expected, error)


def poisson_s(rng: np.random.Generator, count: int, servers: int, load: float) -> Reals:
    return np.cumsum(rng.exponential(MEAN_SERVICE_S / servers / load, count))


def waits_s(servers: int, arrivals: Reals, services: Reals) -> Reals:
    """The waits of a queue with c servers, first in first out (Kiefer and Wolfowitz 1955): whoever is free first serves."""
    free_s = [0.0] * servers
    waits = np.empty(len(arrivals))
    for number, (at_s, runs_s) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        begins_s = max(at_s, heappop(free_s))
        heappush(free_s, begins_s + runs_s)
        waits[number] = begins_s - at_s
    return waits


@pytest.mark.parametrize(("servers", "load"), [pytest.param(1, 0.5, marks=pytest.mark.nightly), (2, 0.7)])
def test_m_m_c_waits_as_erlang_c_says(servers: int, load: float) -> None:
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([servers, seed])
        arrivals_s = poisson_s(rng, ARRIVALS, servers, load)
        record = simulated(policies()["fifo"], servers, arrivals_s, rng.exponential(MEAN_SERVICE_S, ARRIVALS), seed)
        means.append(mean_wait_s(record))
    assert_near(means, mean_wait_m_m_c_s(servers, load), 0.12)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.9), (3, 0.8), (16, 0.95)])
def test_every_wait_is_the_recursions(servers: int, load: float) -> None:
    rng = np.random.default_rng([servers, 1])
    arrivals_s = poisson_s(rng, ARRIVALS, servers, load)
    services = rng.exponential(MEAN_SERVICE_S, ARRIVALS)
    table = simulated(policies()["fifo"], servers, arrivals_s, services, 1).workloads
    expected_s = waits_s(servers, arrivals_s, services)
    assert expected_s.max() > 2 * MEAN_SERVICE_S / servers, "nobody had to wait: that shows nothing"
    np.testing.assert_allclose(table.first_started_s - table.submitted_s, expected_s, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.8), (4, 0.8), (16, 0.85)])
def test_the_recursion_waits_as_erlang_c_says(servers: int, load: float) -> None:
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([servers, seed, 2])
        arrivals_s = poisson_s(rng, MANY_ARRIVALS, servers, load)
        waits = waits_s(servers, arrivals_s, rng.exponential(MEAN_SERVICE_S, MANY_ARRIVALS))
        means.append(float(waits[int(WARM_UP * MANY_ARRIVALS) :].mean()))
    assert_near(means, mean_wait_m_m_c_s(servers, load), 0.04)


def services_s(rng: np.random.Generator, count: int, kind: str) -> Reals:
    if kind == "deterministic":
        return np.full(count, MEAN_SERVICE_S)
    if kind == "uniform":
        return rng.uniform(1.0, 2 * MEAN_SERVICE_S - 1.0, count)
    chosen = rng.choice(np.array(TWO_MEANS_S), size=count, p=TWO_WEIGHTS)
    return rng.exponential(chosen)


def mean_square_s2(kind: str) -> float:
    if kind == "deterministic":
        return MEAN_SERVICE_S**2
    if kind == "uniform":
        return MEAN_SERVICE_S**2 + (2 * MEAN_SERVICE_S - 2.0) ** 2 / 12
    return sum(weight * 2 * mean_s**2 for weight, mean_s in zip(TWO_WEIGHTS, TWO_MEANS_S, strict=True))


@pytest.mark.parametrize(
    ("kind", "load"), [("deterministic", 0.7), pytest.param("uniform", 0.6, marks=pytest.mark.nightly)]
)
def test_m_g_1_waits_as_pollaczek_and_khinchine_say(kind: str, load: float) -> None:
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([7, seed])
        arrivals_s = poisson_s(rng, ARRIVALS, 1, load)
        record = simulated(policies()["fifo"], 1, arrivals_s, services_s(rng, ARRIVALS, kind), seed)
        means.append(mean_wait_s(record))
    assert_near(means, mean_wait_m_g_1_s(load, MEAN_SERVICE_S, mean_square_s2(kind)), 0.12)


def test_m_g_1_of_great_variance_by_the_recursion() -> None:
    load, kind = 0.7, "hyperexponential"
    rng = np.random.default_rng(11)
    arrivals_s, services = poisson_s(rng, ARRIVALS, 1, load), services_s(rng, ARRIVALS, kind)
    table = simulated(policies()["fifo"], 1, arrivals_s, services, 1).workloads
    np.testing.assert_allclose(
        table.first_started_s - table.submitted_s, waits_s(1, arrivals_s, services), rtol=0, atol=1e-6
    )
    means = []
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng([11, seed])
        arrivals_s = poisson_s(rng, MANY_ARRIVALS, 1, load)
        waits = waits_s(1, arrivals_s, services_s(rng, MANY_ARRIVALS, kind))
        means.append(float(waits[int(WARM_UP * MANY_ARRIVALS) :].mean()))
    assert_near(means, mean_wait_m_g_1_s(load, MEAN_SERVICE_S, mean_square_s2(kind)), 0.06)


def stays_with_priorities_s(arrivals: Reals, services: Reals, low: Reals) -> Reals:
    """The times in the system on one server that always works for the better of two classes, first in first out in each,
    and goes on where it was interrupted."""
    queues: tuple[deque[int], deque[int]] = (deque(), deque())
    left, ends = services.tolist(), np.zeros(len(arrivals))
    now = 0.0
    for number, at_s in enumerate([*arrivals.tolist(), math.inf]):
        while now < at_s and (queues[0] or queues[1]):
            queue = queues[0] or queues[1]
            works_s = min(left[queue[0]], at_s - now)
            left[queue[0]] -= works_s
            now += works_s
            if left[queue[0]] < 1e-9:
                ends[queue.popleft()] = now
        if number < len(arrivals):
            now = max(now, at_s)
            queues[int(low[number])].append(number)
    return ends - arrivals


def two_classes(seed: int, count: int, load: float) -> tuple[Reals, Reals, Reals]:
    """Arrivals, work, and 1 for the worse class: drawn, not in turns, so that both are Poisson processes."""
    rng = np.random.default_rng([9, seed])
    return (
        poisson_s(rng, count, 1, load),
        rng.exponential(MEAN_SERVICE_S, count),
        rng.integers(0, 2, count).astype(np.float64),
    )


def test_preemptive_priorities_wait_as_if_the_worse_ones_were_not_there() -> None:
    """M/M/1 with preemptive resume and two classes of half the load each (Kleinrock, Queueing Systems II, §3.4)."""
    load = 0.6
    means: tuple[list[float], list[float]] = ([], [])
    for seed in range(REPLICATIONS):
        arrivals_s, work_s, low = two_classes(seed, MANY_ARRIVALS, load)
        waits = (stays_with_priorities_s(arrivals_s, work_s, low) - work_s)[int(WARM_UP * MANY_ARRIVALS) :]
        for worse in (0, 1):
            means[worse].append(float(waits[low[-len(waits) :] == worse].mean()))
    above = load / 2
    assert_near(means[0], above * MEAN_SERVICE_S / (1 - above), 0.04)
    in_system_s = MEAN_SERVICE_S / (1 - above) + load * MEAN_SERVICE_S / ((1 - above) * (1 - load))
    assert_near(means[1], in_system_s - MEAN_SERVICE_S, 0.04)


def test_every_stay_with_priorities_is_that_of_one_server() -> None:
    names = ("high", "low")
    tenants = tuple(
        Tenant(TenantId(name), priority, Quota.of({ANY_GPU_MODEL: UNLIMITED})) for priority, name in enumerate(names)
    )
    arrivals_s, work_s, low = two_classes(1, ARRIVALS, 0.8)
    owners = [names[int(worse)] for worse in low.tolist()]
    at_once = NO_COSTS.model_copy(update={"scan_period_s": 0.0})
    record = simulated(policies()["mast"], 1, arrivals_s, work_s, 1, owners, at_once, tenants)
    assert int((record.attempts.end == AttemptEnd.PREEMPTED).sum()) > 100
    table = record.workloads
    np.testing.assert_allclose(
        table.ended_s - table.submitted_s, stays_with_priorities_s(arrivals_s, work_s, low), rtol=0, atol=1e-6
    )
