"""Optimistic profiling (Synergy §3.1) of real programs on real CPUs."""
