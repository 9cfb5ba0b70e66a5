"""For how long what is over is kept: which ages make sense, and how people write them."""

from __future__ import annotations

import re

from domain.eviction import HOUR_S
from global_scheduler.credit import CreditSettings

DAY_S = 86_400.0
GREATEST_AGE_S = 36_525 * DAY_S
"""A hundred years: more is a slip of the pen."""

_UNITS_S = {"s": 1.0, "m": 60.0, "h": HOUR_S, "d": DAY_S, "w": 7 * DAY_S}
_AGE = re.compile(r"\s*(?P<number>[-+]?\d+(\.\d+)?)\s*(?P<unit>[a-z]*)\s*")


class BadAge(ValueError):
    """An age for which nothing can be kept; the message is a sentence without its subject that says what would do."""


def parse_age(text: str) -> float:
    """The seconds of an age such as `30d`, `12h` or `2w`; raises BadAge."""
    match = _AGE.fullmatch(text.lower())
    if match is None or match["unit"] not in _UNITS_S:
        raise BadAge(f"is {text!r}; write a number and its unit (s, m, h, d or w), such as 30d")
    return float(match["number"]) * _UNITS_S[match["unit"]]


def least_age_s(usage_window_s: float = CreditSettings().usage_window_s) -> float:
    """What decisions still look at: the window over which the use of tenants is averaged, and the hour within which
    evictions are counted."""
    return max(usage_window_s, HOUR_S)


def check_age(age_s: float, least_s: float) -> float:
    """The age; raises BadAge when decisions still need what is as old, or when it is absurd."""
    if not age_s >= least_s:
        raise BadAge(
            f"is {_words(age_s)}, but what is younger than {_words(least_s)} is still needed for credit and for the bounds of "
            f"evictions; keep at least that"
        )
    if not age_s <= GREATEST_AGE_S:
        raise BadAge(
            f"is {_words(age_s)}; at most {_words(GREATEST_AGE_S)} make sense: say less, or take nothing out at all"
        )
    return age_s


def check_workloads_age(age_s: float, older_than_s: float | None) -> float:
    """For how long workloads themselves are kept; raises BadAge when what they had is kept for longer, or for ever."""
    if older_than_s is None:
        raise BadAge("takes out workloads, and so needs older_than_s for what they had: say that as well")
    if not age_s >= older_than_s:
        raise BadAge(
            f"is {_words(age_s)}, but what workloads had is kept for {_words(older_than_s)}; keep them at least that"
        )
    return check_age(age_s, older_than_s)


def _words(seconds: float) -> str:
    if abs(seconds) < DAY_S:
        return f"{seconds:g} seconds"
    return f"{seconds / DAY_S:g} {'day' if seconds == DAY_S else 'days'}"
