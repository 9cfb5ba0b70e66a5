"""Policies to compare with, one file each."""

from __future__ import annotations

from simulator.baselines.conservative_backfill import CONSERVATIVE_BACKFILL
from simulator.baselines.drf import DRF
from simulator.baselines.drf_packing import DRF_PACKING
from simulator.baselines.easy_backfill import EASY_BACKFILL
from simulator.baselines.fair_share import FAIR_SHARE
from simulator.baselines.federated import FEDERATED, FEDERATED_STALE
from simulator.baselines.fifo import BEST_EFFORT, FIFO, YARN_CS
from simulator.baselines.gandiva import GANDIVA
from simulator.baselines.ideal import IDEAL
from simulator.baselines.las import LAS
from simulator.baselines.lyra import AFS, GANDIVA_ELASTIC, LYRA, LYRA_ELASTIC_ONLY, LYRA_LOANING_ONLY
from simulator.baselines.mast import MAST
from simulator.baselines.own_region import OWN_REGION
from simulator.baselines.random_region import RANDOM_REGION
from simulator.baselines.sf import SF
from simulator.baselines.sjf import SJF
from simulator.baselines.srsf import SRSF
from simulator.baselines.srtf import SRTF
from simulator.baselines.synergy import SYNERGY_GREEDY, SYNERGY_OPT, SYNERGY_PROPORTIONAL, SYNERGY_TUNE
from simulator.baselines.tetris_packing import TETRIS_PACKING
from simulator.baselines.tiresias import TIRESIAS_GITTINS, TIRESIAS_LAS
from simulator.policies.policy import Policy

BASELINES: tuple[Policy, ...] = (
    MAST,
    FEDERATED,
    FEDERATED_STALE,
    RANDOM_REGION,
    OWN_REGION,
    IDEAL,
    FIFO,
    YARN_CS,
    BEST_EFFORT,
    SF,
    SJF,
    SRTF,
    SRSF,
    LAS,
    TIRESIAS_LAS,
    TIRESIAS_GITTINS,
    GANDIVA,
    LYRA,
    LYRA_LOANING_ONLY,
    LYRA_ELASTIC_ONLY,
    AFS,
    GANDIVA_ELASTIC,
    FAIR_SHARE,
    DRF,
    EASY_BACKFILL,
    CONSERVATIVE_BACKFILL,
    SYNERGY_PROPORTIONAL,
    SYNERGY_GREEDY,
    SYNERGY_TUNE,
    SYNERGY_OPT,
    DRF_PACKING,
    TETRIS_PACKING,
)
"""All of them; names are unique."""
