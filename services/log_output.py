"""Where the service's own log lines go: one JSON object per line in a file, or readable lines on standard error."""

from __future__ import annotations

import sys
from pathlib import Path

import structlog

_LEVEL = 20  # logging.INFO


def configure_logging(file: Path | None = None) -> None:
    """Sends structlog's lines to the file (made when missing, appended to), or to standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if file is None:
        structlog.configure(
            processors=[*shared, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())],
            wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    structlog.configure(
        processors=[*shared, structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVEL),
        logger_factory=structlog.PrintLoggerFactory(file.open("a", encoding="utf-8", buffering=1)),
    )
