"""Ctrl-C for commands in processes of their own."""

from __future__ import annotations

import sys

_PROGRAM = """
import signal
from services.command_line.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""

COMMAND_THAT_HEEDS_INTERRUPTS = (sys.executable, "-c", _PROGRAM)
"""What a shell starts in the background ignores SIGINT, and so does whatever that starts in turn, tests too."""
