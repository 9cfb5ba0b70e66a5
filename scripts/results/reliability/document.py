"""The page, from what a run of the chaos driver has written."""

from __future__ import annotations

from statistics import median
from typing import Any

_WHAT = {
    "tiers": (
        "kill the global",
        "kill a regional",
        "kill a cluster",
        "halt the global",
        "halt a regional",
        "halt a cluster",
    ),
    "the database": ("postmaster", "backend", "writer of", "supervisor", "halt the database", "slow database"),
    "what watches, and Ray": ("watcher", "the host", "raylet", "GCS"),
    "tasks": ("a task",),
    "the network": ("connections", "partition", "slow network", "off from the database"),
    "machine and operator": ("clock", "disk", "lost cluster", "lost region"),
    "clients": ("clients",),
}
"""Groups of kinds, by what is in their names; a kind belongs to the first that fits."""


def document_of(run: dict[str, Any]) -> str:
    """In Markdown."""
    faults, closing = run["faults"], run["closing"]
    recoveries = sorted(fault["recovery_s"] for fault in faults)
    parts = [
        "# Reliability\n",
        "<!-- Written by `make reliability`; do not edit. -->\n",
        _introduction(run),
        "## What was kept\n",
        _promises(closing),
        "## Recovery\n",
        _recovery_says(recoveries),
        _table(faults),
        "## How it is measured\n",
        _METHOD,
        "## What it does not cover\n",
        _LIMITS,
    ]
    return "\n".join(parts)


def _introduction(run: dict[str, Any]) -> str:
    minutes, loads = run["seconds"] / 60.0, sorted(run["loads"])
    alone = sum(fault["alone"] for fault in run["faults"])
    passed_over = sum(run["passed_over"].values())
    nothing_to_do = f" {passed_over} more found nothing that they could be done to." if passed_over else ""
    return (
        f"{len(run['faults'])} faults of {len({fault['kind'] for fault in run['faults']})} kinds were injected into a live service in"
        f" {minutes:.0f} minutes, by seed {run['seed']}: {alone} alone, the others two to four at a time.{nothing_to_do} Two regions, three clusters,"
        f" {_processes(run)} for each tier, a PostgreSQL and a Ray of its own, emulated and real tasks. Clients submitted all the time, however"
        f" long answers took. On {run['processors']} processors, on which other work ran too (load average {loads[0]:.1f} to"
        f" {loads[-1]:.1f}, {median(loads):.1f} in the middle): on an idle machine times are shorter.\n\n"
        f"```\n{run['command']}\n```\n"
    )


def _processes(run: dict[str, Any]) -> str:
    return "two processes, one of which stands by," if "--standby" in run["command"] else "a process"


def _promises(closing: dict[str, Any]) -> str:
    ends = ", ".join(f"{count} {end}" for end, count in closing["ends"].items())
    rows = [
        ("workloads acknowledged", closing["acknowledged"], ""),
        ("workloads in the log", closing["workloads"], "more than acknowledged where nobody heard the answer"),
        ("ended", sum(closing["ends"].values()), ends),
        ("lost", closing["lost"], "acknowledged or in the log, and never ended"),
        ("ended twice", closing["ended_twice"], ""),
        ("violations found by `topmast validate --complete`", closing["violations"], f"in {closing['events']} events"),
        (
            "workloads of which clients saw what cannot have been",
            closing["not_linearizable"],
            f"of {closing['calls']} calls, {closing['calls_unknown']} of them with an outcome that nobody knows",
        ),
        ("attempts of real tasks", closing["real_attempts"], "each with a process that had detached itself"),
        ("of them beside another attempt of the same workload", closing["overlaps"], ""),
    ]
    table = "".join(f"| {what} | {figure} | {remark} |\n" for what, figure, remark in rows)
    said = "".join(f"- {problem}\n" for problem in closing["problems"])
    left = (
        f"\nWhat was found wrong:\n\n{said}"
        if said
        else "\nAfter `topmast down` no process, no placement group and no shared memory was left. Nothing was repaired by hand.\n"
    )
    return f"| | | |\n| --- | ---: | --- |\n{table}{left}"


def _recovery_says(recoveries: list[float]) -> str:
    return (
        "From the moment of the fault, and for those that last from their beginning, until everything is as it should be: `topmast status`"
        " shows every part up and every tier led by a process that runs, and a workload for each region that was submitted after the"
        " fault has run. Seconds; where several faults came together each was over when all were.\n\n"
        f"All faults: median {median(recoveries):.1f} s, worst {recoveries[-1]:.1f} s.\n"
    )


def _table(faults: list[dict[str, Any]]) -> str:
    lines = ["| fault | count | lasts | median | worst |", "| --- | ---: | ---: | ---: | ---: |"]
    kinds = sorted({fault["kind"] for fault in faults})
    for group, parts in _WHAT.items():
        mine = [kind for kind in kinds if _group_of(kind) == group]
        if mine and parts:
            lines.append(f"| **{group}** | | | | |")
        lines += [_row(kind, [fault for fault in faults if fault["kind"] == kind]) for kind in mine]
    return "\n".join(lines) + "\n"


def _group_of(kind: str) -> str:
    return next((group for group, parts in _WHAT.items() if any(part in kind for part in parts)), "clients")


def _row(kind: str, of_kind: list[dict[str, Any]]) -> str:
    recoveries = [fault["recovery_s"] for fault in of_kind]
    lasting = median(fault["lasted_s"] for fault in of_kind)
    lasts = f"{lasting:.1f}" if lasting > 1.0 else ""
    return f"| {kind} | {len(of_kind)} | {lasts} | {median(recoveries):.1f} | {max(recoveries):.1f} |"


_METHOD = """\
`tests/chaos/driver` ([decision 108](decisions/108-chaos.md)) starts the service as `topmast up --tiers separate` does, in a network, with mounts and
shared memory of its own (`unshare`), so that packets can be lost and disks be full without anybody else noticing. *Kill* is SIGKILL, *halt* SIGSTOP, and SIGCONT
two to seven seconds later (a lease lasts three). Connections are cut by the kernel (`ss --kill`), packets dropped (`iptables`), answers delayed by a proxy; the
database is slowed down by halting all its processes four fifths of the time. Clocks are set for all processes of the service at once, against that of the
database. A lost cluster or region is halted until its tasks have stopped by themselves, is declared lost, and comes back.

Clients are a process of their own that is killed like the others; its successor asks again with the same idempotency keys. Every call and answer is written
down, and for each workload it is searched for an order of the calls that explains all answers (Wing and Gong). Real tasks hold a lock as long as any of their
processes lives, and say so when they cannot get it.

`make chaos` runs it with the other long tests, `make test` a short form, `make reliability` writes this page anew, from the seed that you say (`SEED=`). The seed
settles which faults come, in which order and of what length. What they meet is up to the machine.

**The deterministic counterpart** (`tests/deterministic`) runs the shell's own code on a simulated clock, transport and database, a thousand and more
schedules a minute on one processor, each of which can be made again from its number:

- *leases*: `LeaseKeeper` and `LeaseRenewal`, several processes with their threads, which are halted, busy, killed or end in order, while the database is slow, away, or
  loses answers. At no moment do two processes hold the lease for certain, no stale one writes, and soon after the last trouble somebody works again. The simulated table of leases is compared with PostgreSQL;
- *orders of attempts*: the ledger of a cluster (`EmulatedExecutor`, `AttemptRegister`), with orders that come late, twice, in another order or never, and a clock that is set;
- *the journal of ends*: broken off at every byte of every write.

**Whole control planes on simulated time** ([decision 112](decisions/112-a-control-plane-on-simulated-time.md)): all tiers as they are, ten processes in two regions and
three clusters, gRPC in memory, and a real PostgreSQL that carries out one transaction at a time, by the simulation's clock. Processes are killed, halted and cut off,
mostly those that lead and where it matters (before a transaction, after its commit, with a call on its way); connections break before and after a commit. At the end all has
ended once and what clients saw is linearizable. Some 20 courses a minute on an idle processor; `make test` runs four, `make test-nightly` four hundred.

## An outage of half an hour

`make outage` takes the database and the schedulers of a local service away for 33 minutes (`OUTAGE_S=`), with real tasks on a real Ray: one that trains goes on in
its first attempt and its process, one that completes and one that fails meanwhile are recorded afterwards, once, in the order and with the times of their ends.
"""

_LIMITS = """\
- The machine itself: power, memory that runs out, a kernel that hangs. `kill -9` loses nothing that was written; a loss of power may lose what a disk has not.
- A database that is lost with its disk: [backups and replicas](operations.md#backups).
- More than one machine: packets between two are lost here by rules of one kernel.
- Leaders with followers, unless the command above says `--standby` (`make reliability STANDBY=--standby`); `make chaos` kills those in tests of their own.
- The runners, reapers and journals of real tasks are not on simulated time but for the journal; attempts on virtual time: `tests/simulator/contract`.
"""
