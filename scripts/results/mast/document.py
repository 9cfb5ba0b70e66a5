"""docs/results/mast.md: what was run, what came out beside what the paper says, and where it is not as good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from domain.events import JsonValue
from scripts.results.mast import tables
from scripts.results.mast.findings import in_short, not_as_good, ways_in_words
from scripts.results.mast.kept import KeptRun, find
from simulator.results.service_levels import DEFAULT_LIMITS_S

MIDDLE_LOAD = 1.0


def document_of(setup: Mapping[str, JsonValue], runs: Sequence[KeptRun]) -> str:
    """The whole page."""
    anywhere = [run for run in runs if run.experiment == "anywhere"]
    parts = (
        _beginning(),
        in_short(runs),
        _experiment(setup),
        _ways(runs),
        _service(anywhere),
        _work(anywhere),
        _allocation(anywhere),
        _regions(anywhere),
        _tables(setup, runs),
        _memory(setup, runs),
        not_as_good(runs),
    )
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _beginning() -> str:
    return """
# MAST against other ways to choose a region

Written by `make results-mast` (`python -m scripts.results.mast`): do not edit it, change `scripts/results/mast/`. The numbers are
in [figures.json](mast/figures.json); the same trace and code give the same bytes. The paper is MAST (OSDI '24).
"""


def _experiment(setup: Mapping[str, JsonValue]) -> str:
    loads = cast(Mapping[str, Mapping[str, JsonValue]], setup["loads"])
    tenants = next(iter(loads.values()))["tenants"]
    larger = ", ".join(f"{setup['larger_than_backed_quota']:,}" for setup in loads.values())
    limits = ", ".join(f"{limit_s / 60:g}" for limit_s in DEFAULT_LIMITS_S)
    return f"""
## The experiment

**Trace.** The {setup["workloads"]:,} GPU jobs of Microsoft's ITP clusters over 60 days (`itp_jobs.csv.gz`), each of the seven clusters a region of
8-GPU machines. A region is as large as its own jobs need to load it 0.7, 1.0 or 1.3 times, from its first submission to its last,
rounded up to whole machines. The clusters are busy at different times and small ones are rounded up, so that the fleet as a whole
is loaded less than each of them:

{tables.fleets(loads)}

**Regions.** Every job may run in every region (but see [data](#when-data-limits-the-regions)), except under `own_region`, where it
stays in its own cluster. A job that is larger than its own region (last column) runs under `own_region` in the first region by name that
can host it; it counts like all others.

**Priorities** are not in the trace. Each job gets one by a seeded draw from the shares that MAST publishes (§4.2: 3, 20, 16, 54, 0.2, 0.5,
0.02 %; the 6 % without one are at the lowest). A tenant is a pair of cluster and priority ({tenants} of them); its quota is its share of the fleet by
GPU-seconds, but at least its largest job, or that could never run within quota. With so many small tenants the quotas therefore add up to
more than the fleet. Quotas *backed by capacity* are in proportion to these and add up to the fleet, to the GPU, so that all tenants can use theirs at once; the jobs that are larger
than their tenant's quota then always run over quota ({larger} at the three loads). Scan passes are a minute apart.

**Costs.** From dispatch to work 150 s (the paper's P50; its P90 is 278 s), 30 s to save a preempted job's checkpoint, 33 s to restore one. No
machine fails.

**Policies.** `mast` is the live service's own code: one queue, auctions in all regions. All
choose victims as the paper does (`eviction.victims: published`), not as the service does where nothing is said. `federated` (§5.6) and `random_region` bind a
job to a region when it is submitted; queue, quota and preemption are as under `mast`. `own_region` has each cluster's jobs queue for it alone. `ideal` is
solution (9) of §4.1, a joint search for windows of eight workloads; it was affordable at load 1.0 only. `random_region` is run at load 1.0 only, too, for it says little.

**What is added to MAST** (fixed before the runs; each alone, then together, at the loads at which demand exceeds supply, with both kinds of quotas). *Compaction* moves small
attempts with a recent checkpoint off nearly empty machines of a region for gangs that wait ([decision 071](../decisions/071-compaction.md)), as the service does by default where it
is switched on; *between regions* they also go on in another region, where the GPUs that a gang lacks in one are idle. *Reservations* keep machines for gangs of 16 GPUs and more that
have waited for an hour ([decision 073](../decisions/073-reservations.md)). *Least work destroyed* is the service's own choice of victims ([decision 064](../decisions/064-least-work-destroyed.md)). *Joint
windows* is `ideal`. *All together* is compaction between regions, reservations and least work destroyed, *all but reservations* these without reservations; joint windows are in neither, they are a policy of their own.
Joint windows and reservations are run at load 1.0 only: on the longer queue of 1.3 they take too long (of reservations that was seen when the first runs had begun). Expected, and so judged: fewer than 1.3 % violations within quota in every eight hours, and 98 % of the GPUs allocated while demand exceeds supply.

**Service level.** MAST's objective is on P95 start latency, from pending to running and anew after each preemption (§5.5); it publishes no
limits. Ours are {limits} minutes for the priorities 0 to 6. The level is *kept at P95* where at most 5 % of the waits are longer. The promise
holds for what is within quota, and a job may wait days over quota before its tenant's use falls and its priority becomes its tenant's. So
there are two measures. **Within quota**: of a wait, the time counts in which the workload was within its tenant's quota (before its first scan pass it
counts as within), and waits are judged that ended within quota or broke the limit in this time. **Whole waits**: all the time counts, of
all waits, as if there were no quotas.
"""


def _ways(runs: Sequence[KeptRun]) -> str:
    return f"""
## What is added to MAST

Violations within quota in all and in the worst eight hours, allocation while demand exceeds supply, whole waits beyond the limit (of the tenants' priorities 0 to 2 and of all), and what it costs:

{tables.ways(runs)}

"Without starts" counts only attempts that work: a moved attempt holds its place while it starts there anew. Lost work is what was done since the last checkpoint of attempts
that left; nothing is lost where they have the time to save, as here. What is paid is the time to save and restore. {ways_in_words(runs)}
"""


def _service(runs: Sequence[KeptRun]) -> str:
    return f"""
## Service levels

The paper (§5.6): on an 8-hour trace MAST stays below 1.3 % violations at all times; the federated approach is much worse, and reaches
50 % for high-priority workloads in busy hours.

Within quota, in all and in the worst eight hours (by when waits began; windows with at least 50 waits):

{tables.service(runs)}

![Violations within quota by priority and policy](mast/violations.svg)

Within quota, by the priority of the tenant:

{tables.by_priority(runs, "violation_rate")}

Whole waits, by the priority of the tenant:

{tables.by_priority(runs, "violation_rate_of_whole_waits")}

Whole waits, by the priority at the dispatch (the lowest for what is over quota), which is what `topmast simulate` reports:

{tables.by_dispatch(runs)}

P95 of start latencies by the priority of the tenant, at load 1.0 and 1.3 (§5.5, Figure 11):

{tables.latencies([run for run in runs if run.load >= MIDDLE_LOAD and run.policy in {"mast", "federated"}])}

![Distribution of start latencies](mast/start-latency.svg)
"""


def _work(runs: Sequence[KeptRun]) -> str:
    return f"""
## Queueing and preemption

{tables.work(runs)}

Lost work is what a preemption costs beyond its checkpoint: none, as jobs are given the time to save. What is paid is the time to save and
restore. Start latency of large workloads (32 GPUs or more):

{tables.large(runs)}
"""


def _allocation(runs: Sequence[KeptRun]) -> str:
    return f"""
## Allocation of GPUs

The paper (§5.2): 98 % of the GPU-hours are allocated, where demand always exceeds supply (§3.2). Here a GPU is allocated from the dispatch on;
"without starts" counts only attempts that run, that is without the start of containers and without victims that save their work. Demand is
that of all regions together.

{tables.allocation(runs)}

![GPUs allocated over time](mast/allocation.svg)
"""


def _regions(runs: Sequence[KeptRun]) -> str:
    return f"""
## The most overloaded region

Demand over supply of the region where that is largest, in steps of 12 hours, until the last submission. What waits under `mast` and `ideal` is counted
in the region where it runs at last. (The paper's 2.63 before and 0.98 after Tetris are of high-priority jobs, and of moving data; not the same.)

{tables.regional_load(runs)}

![Demand over supply of each region](mast/regional-load.svg)
"""


def _tables(setup: Mapping[str, JsonValue], runs: Sequence[KeptRun]) -> str:
    shown = find(runs, "tables", MIDDLE_LOAD)
    return f"""
## When data limits the regions

The same at load 1.0, with synthetic tables: {setup["tables"]:,} of them, shared and copied as MAST publishes (a quarter of the jobs can run in one region
only, 40 % in four or more). {setup["fit_nowhere_with_data"]:,} jobs that are larger than every region with their data are left out. Data does not move.

{tables.service(shown)}

{tables.by_priority(shown, "violation_rate")}

{tables.work(shown)}

{tables.allocation(shown)}

{tables.regional_load(shown)}
"""


def _memory(setup: Mapping[str, JsonValue], runs: Sequence[KeptRun]) -> str:
    first, last = cast(Sequence[int], setup["window_days"])
    shown = [run for run in runs if run.experiment == "memory"]
    same = all(
        len({run.kept["decisions"] for run in find(shown, "memory", load)}) == 1 for load in {r.load for r in shown}
    )
    verdict = "The digests of the decisions are equal" if same else "THE DIGESTS DIFFER, which must not be"
    return f"""
## The negative cache

The paper (§4.3): a negative cache that is emptied with each scan pass answers about 80 % of the questions. Ours outlives scan passes, for it ends an
entry as soon as there may be room ([decision 007](../decisions/007-room-and-refusals.md)); it never refuses what could be placed. So it can neither cost nor gain
start latency in simulated time. {verdict}: the gain is computing time alone. On the days {first} to {last - 1} of the trace, those with the
most work submitted ({setup["window_workloads"]:,} jobs), under `mast`:

{tables.memory(shown)}

A question is one region asked for room for one workload. Where refusals are kept, others of a refused kind are not even asked in the same pass, so that
there are fewer questions; the shares answered from memory are therefore not to be compared down the table. "Spared" can be: it is the share of
the questions of a run without memory for which no plan was made. The row of the paper's variant is the one to hold
against its 80 %.

Seconds on the wall clock are printed by the command, for they are not the same in every run. Measured once, on a busy machine with two cores: 1.7 s, 3.0 s and
15.8 s at load 1.0, and 4.9 s, 6.4 s and 60.9 s at load 1.3, in the order of the table. That is what the cache gains; scan passes and all else are in it.
"""
