"""Clients in a process of their own, which may be killed at any moment: its successor takes up what it had begun.

Submissions come as they come (open loop, a Poisson process), with idempotency keys; other clients look at the same workloads and
cancel some of them at the same time. A call is tried once: whoever does not know what became of it asks again with the
same key, and the history has both calls.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from services.wire.workloads import specification_to_proto
from tests.chaos.driver.history import HistoryWriter, Kind, read_history
from tests.chaos.driver.workloads import Witness, emulated, real
from topmast import AsyncClient, NotFoundError, PreconditionError, TopmastError
from topmast.v1 import workload_pb2

_CLIENTS = 6
_TIMEOUT_S = 8.0
_PAUSE_S = 0.3
_REAL_SHARE = 0.1
_CANCELLED_SHARE = 0.12
_GIVEN_UP_SHARE = 0.04
_SUBMITTED_AGAIN_SHARE = 0.2


@dataclass
class Crew:
    """All clients of one process."""

    clients: list[AsyncClient]
    history: HistoryWriter
    witness: Witness
    seed: int
    generation: int
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _said: set[str] = field(default_factory=set)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def _say(self, what: str) -> None:
        """Each thing once, for the log of the process."""
        if what not in self._said:
            self._said.add(what)
            print(what, flush=True)

    async def arrive(self, per_s: float, keys: itertools.count[int]) -> None:
        """Submits at its own pace, however long answers take, until it is to stop; returns when nothing is open any more."""
        rng = np.random.default_rng([self.seed, 7, self.generation])
        async with asyncio.TaskGroup() as tasks:
            while not self.stopping.is_set():
                tasks.create_task(self.live(f"w{next(keys)}"))
                with suppress(TimeoutError):
                    async with asyncio.timeout(float(rng.exponential(1.0 / per_s))):
                        await self.stopping.wait()

    async def live(self, key: str) -> None:
        """One workload, from its submission on; the same key always means the same workload."""
        rng = np.random.default_rng([self.seed, int(key[1:])])
        is_real = bool(rng.random() < _REAL_SHARE)
        specification = real(key, self.witness, float(rng.uniform(2.0, 10.0))) if is_real else emulated(key, rng)
        message = specification_to_proto(specification)
        if rng.random() < _GIVEN_UP_SHARE:
            # A user who does not wait for the answer, and asks again.
            with suppress(TimeoutError):
                async with asyncio.timeout(float(rng.uniform(0.0, 0.02))):
                    await self._submit(key, message)
        workload = await self._submitted(key, message)
        later = [self._look(key, workload) for _ in range(int(rng.integers(0, 4)))]
        if rng.random() < _CANCELLED_SHARE:
            later += [self._cancel(key, workload), self._cancel(key, workload)]
        if rng.random() < _SUBMITTED_AGAIN_SHARE:
            later += [self._submit(key, message)]
        await asyncio.gather(*(self._later(rng, call) for call in later))

    async def _submitted(self, key: str, message: workload_pb2.WorkloadSpecification) -> str:
        """The workload; asks until there is an answer."""
        while True:
            workload = await self._submit(key, message)
            if workload is not None:
                return workload
            await asyncio.sleep(_PAUSE_S)

    async def _submit(self, key: str, message: workload_pb2.WorkloadSpecification) -> str | None:
        return await self._call(key, Kind.SUBMIT, lambda client: client.submit(message, idempotency_key=key))

    @staticmethod
    async def _later(rng: np.random.Generator, call: Any) -> None:
        await asyncio.sleep(float(rng.uniform(0.0, 6.0)))
        await call

    async def _look(self, key: str, workload: str) -> str | None:
        return await self._call(key, Kind.GET, lambda client: client.get(workload))

    async def _cancel(self, key: str, workload: str) -> str | None:
        return await self._call(key, Kind.CANCEL, lambda client: client.cancel(workload))

    async def _call(self, key: str, kind: Kind, call: Any) -> str | None:
        """Of a submission: the workload. None when nobody knows what became of the call."""
        number = next(self._numbers)
        name = f"{self.generation}-{number}"
        client = self.clients[number % len(self.clients)]
        self.history.write(number=name, key=key, kind=kind, called_s=time.monotonic())
        try:
            answer = await call(client)
        except NotFoundError:
            told: dict[str, Any] = {"found": False}
        except PreconditionError:
            if kind is not Kind.CANCEL:
                return None
            told = {"refused": True}
        except TopmastError as error:
            self._say(str(error))
            return None
        else:
            told = _told(kind, answer)
        self.history.write(number=name, returned_s=time.monotonic(), **told)
        return str(told.get("workload", ""))


def _told(kind: Kind, answer: Any) -> dict[str, Any]:
    match kind:
        case Kind.SUBMIT:
            return {"workload": answer.workload, "existed": answer.existed}
        case Kind.GET:
            return {"state": str(answer.state), "attempts": len(answer.attempts)}
        case Kind.CANCEL:
            return {"state": str(answer)}


async def _run(arguments: argparse.Namespace) -> None:
    path = arguments.history
    former = read_history(path)
    known = {one.key for one in former if one.kind is Kind.SUBMIT and one.is_known}
    begun = {one.key for one in former}
    generation = 1 + max((int(one.number.partition("-")[0]) for one in former), default=0)
    first = 1 + max((int(key[1:]) for key in begun), default=-1)
    clients = [AsyncClient(arguments.address, timeout_s=_TIMEOUT_S, attempts=1) for _ in range(_CLIENTS)]
    crew = Crew(clients, HistoryWriter(path), Witness(arguments.witness), arguments.seed, generation)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, crew.stopping.set)
    async with asyncio.TaskGroup() as tasks:
        for key in sorted(begun - known):
            tasks.create_task(crew.live(key))
        tasks.create_task(crew.arrive(arguments.per_s, itertools.count(first)))
    for client in clients:
        await client.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--history", type=Path, required=True)
    parser.add_argument("--witness", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--per-s", type=float, required=True)
    asyncio.run(_run(parser.parse_args()))
    os._exit(0)


if __name__ == "__main__":
    main()
