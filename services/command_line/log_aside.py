"""Where a command uses the parts of a service itself: what they log is no result of the command."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def log_aside() -> Iterator[None]:
    """Warnings go to standard error, what is merely worth knowing to a service nowhere."""
    import structlog

    from services.log_output import configure_logging

    before = structlog.get_config()
    configure_logging()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        yield
    finally:
        structlog.configure(**before)
