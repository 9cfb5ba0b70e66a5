"""What the validator knows, one concept per file: machines, gangs, regions, quotas, evictions, lives, progress.

It recomputes the invariants of the design from an event log and the files of the fleet and the tenants. It knows
nothing of the schedulers: it may import `domain` and `formats` only, and takes from the log what was done, never
what was thought.
"""
