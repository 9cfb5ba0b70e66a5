"""Keywords that a method does not have are refused, as Python itself does for those that are written out in its head."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def refuse_unknown_keywords(method: str, said: Collection[str], known: Collection[str]) -> None:
    """Raises TypeError for the first keyword that is not known, with the name that was probably meant."""
    for keyword in said:
        if keyword not in known:
            plain = {name.replace("_", ""): name for name in known}
            near = difflib.get_close_matches(keyword.replace("_", "").lower(), plain, n=1, cutoff=0.6)
            hint = f"did you mean '{plain[near[0]]}'?" if near else f"it has {', '.join(sorted(known))}"
            raise TypeError(f"{method}() has no keyword '{keyword}'; {hint}")
