"""Lengths of time as people write them on the command line."""

from __future__ import annotations

import math
import re
from types import MappingProxyType

import typer

_UNITS_S = MappingProxyType({"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0})
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]?\d):([0-5]?\d)")


def parse_duration(text: str) -> float:
    """Seconds: 90s, 30m, 2h, 1h30m, 2d 12h, or as Slurm writes them 1:30:00 and 2-12:00:00.

    A number without a unit could mean seconds or, as in Slurm, minutes: it is refused. Raises ValueError with a sentence.
    """
    said = text.strip().lower()
    clock = _CLOCK.fullmatch(said)
    if clock is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    parts = _PART.findall(said)
    units = [unit for _, unit in parts]
    seconds_in_all = sum(float(amount) * _UNITS_S[unit] for amount, unit in parts)
    in_order = units == sorted(set(units), key=list(_UNITS_S).index)
    if not parts or _PART.sub("", said).strip() or not in_order or not math.isfinite(seconds_in_all):
        raise ValueError(f"'{text}' is no length of time; write 90s, 30m, 2h, 1h30m, 2d, or 1:30:00")
    return seconds_in_all


def duration_option(text: str, option: str) -> float | None:
    """What an option says, in seconds; None: it was not given. Raises BadParameter, which names the option."""
    if not text:
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from error
