"""Where the service's own log lines go: one JSON object per line in a file, or readable lines on standard error."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path

import structlog

_LEVEL = 20  # logging.INFO


class _LossyFile(TextIOWrapper):
    """A file that loses what cannot be written: a full disk takes the lines of a log, and must not end who writes them."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            return 0

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            return


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
        logger_factory=structlog.PrintLoggerFactory(_LossyFile(file.open("ab"), encoding="utf-8", line_buffering=True)),
    )
