"""Backfilling as textbooks tell it, on one machine and whole seconds: slow, plain, and written without the simulator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RigidRequest:
    """A workload; they are numbered in the order of submission."""

    submit_s: int
    duration_s: int
    gpus: int


def conservative_starts(asked: list[RigidRequest], gpus: int) -> list[int]:
    """Each workload gets, when it comes and for good, the first hole in which it fits."""
    horizon_s = max(job.submit_s for job in asked) + sum(job.duration_s for job in asked) + 1
    free = [gpus] * horizon_s
    starts = []
    for job in asked:
        start_s = job.submit_s
        while any(free[second] < job.gpus for second in range(start_s, start_s + job.duration_s)):
            start_s += 1
        for second in range(start_s, start_s + job.duration_s):
            free[second] -= job.gpus
        starts.append(start_s)
    return starts


def easy_starts(asked: list[RigidRequest], gpus: int) -> list[int]:
    """Mu'alem and Feitelson, Figure 1: shadow time and extra nodes of the first that cannot start."""
    starts: dict[int, int] = {}
    now = 0
    while len(starts) < len(asked):
        running = [n for n, start_s in starts.items() if start_s + asked[n].duration_s > now]
        idle = gpus - sum(asked[n].gpus for n in running)
        queue = [n for n, job in enumerate(asked) if job.submit_s <= now and n not in starts]
        while queue and asked[queue[0]].gpus <= idle:
            starts[queue[0]] = now
            running.append(queue[0])
            idle -= asked[queue.pop(0)].gpus
        if queue:
            head, available, shadow_s = queue.pop(0), idle, now
            for n in sorted(running, key=lambda n: starts[n] + asked[n].duration_s):
                if available >= asked[head].gpus and starts[n] + asked[n].duration_s > shadow_s:
                    break
                available += asked[n].gpus
                shadow_s = starts[n] + asked[n].duration_s
            extra = available - asked[head].gpus
            for n in queue:
                in_time = now + asked[n].duration_s <= shadow_s
                if asked[n].gpus <= idle and (in_time or asked[n].gpus <= extra):
                    starts[n] = now
                    idle -= asked[n].gpus
                    extra -= 0 if in_time else asked[n].gpus
        now += 1
    return [starts[n] for n in range(len(asked))]
