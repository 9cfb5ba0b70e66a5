"""What a policy does wrong is its own fault, and says so: packages bring policies, and these may have errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from global_scheduler.knowledge import OracleNeeded


class PolicyFailed(ValueError):
    """The policy of that name raised, or gave what is no answer; nothing was decided."""

    def __init__(self, policy: str, kind: str, description: str) -> None:
        self.policy = policy
        super().__init__(f"the {kind} policy {policy} {description}")


@contextmanager
def asking(policy: str, kind: str) -> Iterator[None]:
    """Whatever the policy raises inside becomes PolicyFailed; OracleNeeded stays what it is."""
    try:
        yield
    except (PolicyFailed, OracleNeeded):
        raise
    except Exception as error:
        raise PolicyFailed(policy, kind, f"failed: {type(error).__name__}: {error}") from error


def column_of(numbers: object, length: int, policy: str, kind: str) -> NDArray[np.float64]:
    """The numbers as a column of that length. Raises PolicyFailed for what is none."""
    column = np.asarray(numbers)
    if column.shape != (length,) or not np.can_cast(column.dtype, np.float64):
        described = f"gave {column.dtype} of shape {column.shape} for {length} workloads; one number each is wanted"
        raise PolicyFailed(policy, kind, described)
    return column
