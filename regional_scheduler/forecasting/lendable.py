"""How many machines an inference cluster lends: all but what it needs now, what it will need, and a headroom (Lyra §7.1)."""

from __future__ import annotations

import math
from typing import Final

from domain.inference import DEFAULT_HEADROOM, DEFAULT_LOOK_EVERY_S

HEADROOM: Final = DEFAULT_HEADROOM
LOOK_EVERY_S: Final = DEFAULT_LOOK_EVERY_S
_ROUNDING: Final = 1e-9


def machines_to_keep(machines: int, load: float, forecast: float, headroom: float = HEADROOM) -> int:
    """How many machines inference is to have until the next look; it may be more than there are.

    `load` is the share that is needed now, `forecast` the share that will be needed. The greater of the two and the
    headroom are kept, each rounded up to whole machines: what inference needs now is never lent, and a reclaim starts
    before the need.
    """
    return math.ceil(max(load, forecast) * machines - _ROUNDING) + math.ceil(headroom * machines - _ROUNDING)


def lendable_machines(machines: int, load: float, forecast: float, headroom: float = HEADROOM) -> int:
    """How many of so many machines can be lent until the next look: all but those to keep."""
    return max(0, machines - machines_to_keep(machines, load, forecast, headroom))
