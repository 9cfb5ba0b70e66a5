"""A mover as a process of its own: `python -m services.data_placement.movers.file_process`.

The first line of standard input is the order. Each further one says how fast it may go, and that whoever started it is
still in charge, and until when nobody else can be: until then it may rename and remove files, and no longer, however
long it has been stopped in between. When no line comes for a while, or the input ends, it ends at once, whatever it is
doing. It says how far it is, how often its storage has answered, and in the end how it ended, on standard output. All
lines are JSON.
"""

from __future__ import annotations

import json
import math
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
        self._certain_until_s = -math.inf
        self._copied = 0
        self._said_s = 0.0
        self.steps = 0
        """Grows as long as the storage answers, or is not waited for."""

    def grant(self, rates: list[float], certain_until_s: float) -> None:
        """Bytes per second of each part, from now on, and until when the lease cannot be another's (monotonic)."""
        with self._changed:
            self._rates, self._certain_until_s = rates, certain_until_s
            self._changed.notify_all()

    def goes_on(self) -> None:
        """The storage has answered."""
        self.steps += 1

    def in_charge(self) -> None:
        """Waits until no other mover can be carrying out the same migration."""
        self.goes_on()
        with self._changed:
            while time.monotonic() >= self._certain_until_s:
                self._changed.wait(1.0)
                self.goes_on()

    def passed(self, part: int, size: int) -> None:
        """So many bytes have passed: waits as long as that takes at the granted rate."""
        with self._changed:
            left = float(size)
            while left > 0:
                rate = self._rates[part] if part < len(self._rates) else 0.0
                begun_s = time.monotonic()
                self._changed.wait(min(left / rate, 1.0) if rate > 0 else 1.0)
                left -= rate * (time.monotonic() - begun_s)
                self.goes_on()
        self.there(size)

    def there(self, size: int) -> None:
        """So many bytes need not pass any more."""
        self.goes_on()
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
            beat = json.loads(line)
            self._pace.grant([float(rate) for rate in beat["rates"]], float(beat["certain_until"]))
        os._exit(_ORPHANED)

    def _watch(self) -> None:
        while time.monotonic() - self._heard_s < SILENCE_REAL_S:
            say({"alive": self._pace.steps})
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
