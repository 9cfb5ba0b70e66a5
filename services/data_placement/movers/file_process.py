"""A mover as a process of its own: `python -m services.data_placement.movers.file_process`.

The first line of standard input is the order. Each further one says how fast it may go, and that whoever started it is
still in charge: when none comes for a while, or the input ends, it ends at once, whatever it is doing. It says how
far it is, that it is alive, and in the end how it ended, on standard output. All lines are JSON.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from services.data_placement.movers.file_work import carry_out
from services.data_placement.movers.orders import MoverOrder
from services.data_placement.movers.region_folders import MoverProblem

SILENCE_REAL_S = 10.0
"""So long after the last line it ends."""
_SAY_REAL_S = 0.2
"""So often it says how far it is."""
_ORPHANED = 3


class Pace:
    """Copies no faster than granted, and says how far it is."""

    def __init__(self, parts: int) -> None:
        self._rates: list[float] = [0.0] * parts
        self._changed = threading.Condition()
        self._copied = 0
        self._said_s = 0.0

    def grant(self, rates: list[float]) -> None:
        """Bytes per second of each part, from now on."""
        with self._changed:
            self._rates = rates
            self._changed.notify_all()

    def passed(self, part: int, size: int) -> None:
        """So many bytes have passed: waits as long as that takes at the granted rate."""
        with self._changed:
            left = float(size)
            while left > 0:
                rate = self._rates[part] if part < len(self._rates) else 0.0
                begun_s = time.monotonic()
                self._changed.wait(min(left / rate, 1.0) if rate > 0 else 1.0)
                left -= rate * (time.monotonic() - begun_s)
        self.there(size)

    def there(self, size: int) -> None:
        """So many bytes need not pass any more."""
        self._copied += size
        now_s = time.monotonic()
        if now_s - self._said_s >= _SAY_REAL_S:
            self._said_s = now_s
            say({"copied": self._copied})


_speaking = threading.Lock()


def say(message: dict[str, object]) -> None:
    """A line on standard output."""
    with _speaking:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


def end(message: dict[str, object]) -> None:
    """The last line of all."""
    with _speaking:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
        # The thread that listens would hold the interpreter up.
        os._exit(0)


class Listener:
    """Hears what comes after the order, in a thread; ends the process when nothing comes any more."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._heard_s = time.monotonic()

    def start(self) -> None:
        for work in (self._listen, self._watch):
            threading.Thread(target=work, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self._heard_s = time.monotonic()
            self._pace.grant([float(rate) for rate in json.loads(line)["rates"]])
        os._exit(_ORPHANED)

    def _watch(self) -> None:
        while time.monotonic() - self._heard_s < SILENCE_REAL_S:
            say({"alive": True})
            time.sleep(SILENCE_REAL_S / 10)
        os._exit(_ORPHANED)


def main() -> None:
    """One order, then the end."""
    order = MoverOrder.from_json(sys.stdin.readline())
    pace = Pace(len(order.parts))
    Listener(pace).start()
    try:
        remark = carry_out(order, pace)
    except MoverProblem as problem:
        end({"failed": str(problem)})
    else:
        end({"done": True, "remark": remark})


if __name__ == "__main__":
    main()
