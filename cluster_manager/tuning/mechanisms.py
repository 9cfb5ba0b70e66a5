"""The ways to share out CPUs and memory, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cluster_manager.tuning.drf_packing import DrfPacking
from cluster_manager.tuning.greedy import Greedy
from cluster_manager.tuning.mechanism import TuningMechanism
from cluster_manager.tuning.opt import Opt
from cluster_manager.tuning.proportional import Proportional
from cluster_manager.tuning.tetris_packing import TetrisPacking
from cluster_manager.tuning.tune import Tune

_ALL: tuple[TuningMechanism, ...] = (Proportional(), Greedy(), Tune(), Opt(), DrfPacking(), TetrisPacking())
TUNING_MECHANISMS: Mapping[str, TuningMechanism] = MappingProxyType({mechanism.name: mechanism for mechanism in _ALL})
