"""Time slicing (Gandiva, OSDI 2018, §3.2; Tiresias §5.3 compares with it).

Rule: the ordering `longest_waiting` with the levels `time_slice`: an attempt is safe for one time slice. After it,
a waiting workload may take its place, the longest waiting first; while none waits it simply goes on. So those
that want the same GPUs take turns, round robin.
Invariant: no attempt is evicted before it has worked for a slice; of two that would both find room, the one that
has waited longer since its submission or its last turn starts first.
Ignores: priorities, quotas, run times; and of Gandiva itself packing, migration and growing into idle GPUs.

A switch costs what the run's settings say. Gandiva suspends and resumes in about a second (§4.1): with costs of
minutes most of a 60-second slice is lost, as it would be on a system without its mechanisms. While none waits a
workload costs one event more than under first in, first out.
"""

from __future__ import annotations

from global_scheduler.levels.time_slice import TimeSlice
from global_scheduler.ordering.longest_waiting import LongestWaiting
from simulator.policies.policy import Policy

GANDIVA = Policy(
    name="gandiva",
    summary="time slicing, round robin in slices of 60 s (Gandiva §3.2, Tiresias §5.3)",
    ordering=LongestWaiting(),
    levels=TimeSlice(),
)
