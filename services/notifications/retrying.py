"""When a notification that failed is sent again, and when it is given up."""

from __future__ import annotations

_FIRST_WAIT_S = 5.0
_GREATEST_WAIT_S = 3_600.0


def next_try_real_s(
    tries: int, made_real_s: float, now_real_s: float, chance: float, give_up_after_real_s: float
) -> float | None:
    """After `tries` failures (1 or more): the wait doubles from 5 s up to an hour, and is between half of that and all of it, as
    `chance` (from 0 to 1) says, so that not all come back together. None: it is given up.
    """
    wait_s = min(_GREATEST_WAIT_S, _FIRST_WAIT_S * 2.0 ** min(tries - 1, 30)) * (0.5 + chance / 2.0)
    return None if now_real_s + wait_s > made_real_s + give_up_after_real_s else now_real_s + wait_s
