"""Whether a service is whole again, and takes work: what a fault's recovery is measured by."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from services.wire.workloads import specification_to_proto
from tests.chaos.driver.faults import World
from tests.chaos.driver.targets import NoTarget, runs
from tests.chaos.driver.workloads import probe
from topmast import Client, TopmastError

_LOOK_INTERVAL_REAL_S = 0.25
PATIENCE_REAL_S = 300.0
"""A service that is not whole by then does not recover by itself."""


class NotRecovered(AssertionError):
    """It is not whole after all this time; says what is missing."""


@dataclass
class Probes:
    """Workloads that are submitted to see whether they run: one for each region, after each fault."""

    world: World
    submitted: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def begin(self, *, is_real: bool) -> Callable[[], str]:
        """Has them submitted, as soon as anybody takes them; returns what says what of them is missing ("": nothing)."""
        number = next(self._numbers)
        waiting = {f"probe-{number}-{region}": region for region in self.world.regions()}
        known: dict[str, str] = {}

        def missing() -> str:
            address = self.world.service.client.address
            with Client(address, attempts=1, timeout_s=2.0) as client:
                for name, region in list(waiting.items()):
                    if name not in known:
                        work = specification_to_proto(probe(name, region, is_real=is_real and region == "east"))
                        known[name] = client.submit(work, idempotency_key=name).workload
                        self.submitted.append(known[name])
                    if client.get(known[name]).state == "COMPLETED":
                        del waiting[name]
            return ", ".join(sorted(waiting))

        def patiently() -> str:
            try:
                return missing() if waiting else ""
            except TopmastError as error:
                return f"{', '.join(sorted(waiting))} ({error})"

        return patiently


def what_is_missing(world: World) -> str:
    """What keeps the service from being whole, as `topmast status` tells and its processes show; "": nothing."""
    state = world.targets.state()
    if not state.is_whole:
        return "; ".join(state.down) or "the host is not ready"
    try:
        status = world.status()
    except NoTarget as error:
        return str(error)
    alive = {(one.tier, one.name) for one in status.tiers if one.alive and runs(one.process_id)}
    if missing := set(world.tiers()) - alive:
        return f"no process leads {sorted(missing)}"
    if status.health:
        return "; ".join(one.sentence for one in status.health)
    down = [one.region for one in status.regions if one.machines_up < one.machines]
    return f"machines of {down} are down" if down else ""


def until_recovered(world: World, probed: Callable[[], str]) -> None:
    """Returns when the service is whole, and what was submitted after the fault has run. Raises NotRecovered."""
    deadline_s = time.monotonic() + PATIENCE_REAL_S
    while missing := " / ".join(filter(None, (probed(), what_is_missing(world)))):
        if time.monotonic() > deadline_s:
            raise NotRecovered(missing)
        time.sleep(_LOOK_INTERVAL_REAL_S)
