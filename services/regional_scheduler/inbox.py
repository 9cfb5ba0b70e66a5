"""What happens outside a session comes in here, and waits until its loop looks."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from domain.identifiers import MachineId
from domain.machine_life_cycle import MachineHappening
from domain.placement import AttemptKey
from domain.plan import Plan
from services.regional_scheduler.action_requests import ActionRequest
from services.regional_scheduler.cluster_link import LinkMessage
from services.regional_scheduler.session_over import SessionOver


@dataclass(slots=True)
class MachineRequest:
    """This is to happen to machines; `evicted` is answered with the attempts that have to leave for it now."""

    machines: tuple[MachineId, ...]
    happening: MachineHappening
    reason: str
    keep_running: bool
    evicted: asyncio.Future[list[AttemptKey]]
    deadline_s: float | None = None
    """When what still runs there has to leave, where it is kept running now; None: never."""
    refuse: bool = True
    """Whether it is refused as a whole when it cannot happen to one of them; else that one is passed over."""


class Inbox:
    """Messages of cluster managers, requests for machines, and flags; setting a flag twice is once."""

    def __init__(self) -> None:
        self.look_at_attempts = True
        """Cancellations and re-classifications."""
        self.look_at_auction = True
        self.look_at_applied = True
        """Fleet, tenants, tables: there may be newer ones."""
        self.look_at_moves = True
        """Requests for machines, and machines that change their cluster: there may be other ones."""
        self._messages: list[LinkMessage] = []
        self._machine_requests: list[MachineRequest] = []
        self._action_requests: list[ActionRequest] = []
        self._awaited: list[asyncio.Future[list[AttemptKey]] | asyncio.Future[Plan]] = []
        """The answers to all requests; the loop may end while it works on one, or before it has begun with the next."""
        self._changed = asyncio.Event()
        self._closed = False

    def put(self, message: LinkMessage) -> None:
        self._messages.append(message)
        self._changed.set()

    def request(self, request: MachineRequest) -> None:
        """Has the loop answer the request. Raises SessionOver when there is no loop any more."""
        if self._closed:
            raise SessionOver("it ended before it could be asked")
        self._machine_requests.append(request)
        self._await(request.evicted)

    def request_action(self, request: ActionRequest) -> None:
        """Has the loop answer the request. Raises SessionOver when there is no loop any more."""
        if self._closed:
            raise SessionOver("it ended before it could be asked")
        self._action_requests.append(request)
        self._await(request.plan)

    def _await(self, answer: asyncio.Future[list[AttemptKey]] | asyncio.Future[Plan]) -> None:
        self._awaited = [earlier for earlier in self._awaited if not earlier.done()]
        self._awaited.append(answer)
        self._changed.set()

    def wake(self) -> None:
        """Something is to be looked at."""
        self._changed.set()

    async def wait(self, timeout_real_s: float) -> bool:
        """Waits until something has come in since the last wait; False when nothing did in that time."""
        try:
            async with asyncio.timeout(timeout_real_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take_messages(self) -> list[LinkMessage]:
        messages, self._messages = self._messages, []
        return messages

    def take_machine_requests(self) -> list[MachineRequest]:
        requests, self._machine_requests = self._machine_requests, []
        # What is asked of a machine ends its move.
        self.look_at_moves |= bool(requests)
        return requests

    def take_action_requests(self) -> list[ActionRequest]:
        requests, self._action_requests = self._action_requests, []
        return requests

    def close(self) -> None:
        """The loop has ended: requests that wait for an answer get that as an error."""
        self._closed = True
        for answer in self._awaited:
            if not answer.done():
                answer.set_exception(SessionOver("it ended before it had answered"))
