"""Policies to compare with, one file each."""

from __future__ import annotations

from simulator.baselines.fifo import BEST_EFFORT, FIFO, YARN_CS
from simulator.baselines.las import LAS
from simulator.baselines.mast import MAST
from simulator.baselines.srtf import SRTF
from simulator.policies.policy import Policy

BASELINES: tuple[Policy, ...] = (MAST, FIFO, YARN_CS, BEST_EFFORT, SRTF, LAS)
"""All of them; names are unique."""
