"""Who asks: shown with the workloads that they hold, requeue or change."""

from __future__ import annotations

import getpass


def asked_by() -> str:
    """The name of the user of this process; "" where it has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # A container may run under a number that has no name.
        return ""
