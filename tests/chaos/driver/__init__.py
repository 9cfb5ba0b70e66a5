"""Injects faults into a real service by a seed, watches it recover, and checks at the end that it kept its promises.

`python -m tests.chaos.driver --seed 1 --faults 200 --output result.json`.
"""
