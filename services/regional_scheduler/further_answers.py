"""A round is continued without the database: the region that closes it asks the others for answers to further lots (decision 080).

Nothing is promised by these answers: what is decided on them is stored in one with the rest of the round, or not at all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import grpc

from domain.identifiers import RegionId
from regional_scheduler.bidding import PlaceLost
from regional_scheduler.rounds import RegionResponse, Round
from services.database.auction_documents import response_document, response_from_document
from services.database.lease_store import RegionalScheduler
from services.regional_scheduler.region_memory import RegionMemory
from services.security.certificate_folder import CertificatesUnusable
from services.security.transport import PLAINTEXT, FileState, TransportSecurity
from services.tiers.tier_channel import tier_channel
from topmast.v1 import regional_scheduler_pb2 as messages
from topmast.v1 import regional_scheduler_pb2_grpc

MOST_QUESTIONS = 2
"""So many are taken at a time: one region closes a round, and one that it took it over from may have asked before."""

_SILENCE = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
_PATIENT_REAL_S = 0.5
"""Who was not waited for as long may have been busy: that is no silence."""


@dataclass(frozen=True, slots=True)
class FurtherQuestion:
    """What is asked of every region of a round, when some of its lots are decided."""

    round_number: int
    winners: tuple[RegionId | None, ...]
    """Of the lots that are decided."""
    expected_winners: tuple[RegionId | None, ...]
    """Of the lots that follow them and are to be answered."""


class CannotGoOn(Exception):
    """A region does not answer further lots of a round: it is away, has begun anew, or lost a place that it has won."""

    def __init__(self, region: RegionId, why: str, *, silent: bool = False) -> None:
        """`silent`: nothing was heard of the region, and time was lost by that."""
        super().__init__(f"{region} {why}")
        self.region = region
        self.silent = silent


class FurtherAnswers:
    """What one region answers to further lots of the round that it has answered last."""

    def __init__(self, memory: RegionMemory, lease_token: int) -> None:
        self.lease_token = lease_token
        self._memory = memory
        self._round: Round | None = None
        self._questions = 0
        """That are being answered, or wait for it."""

    def answered(self, auction_round: Round) -> None:
        """The region has answered this round: with all its lots, also those that were not to be answered yet."""
        self._round = auction_round

    async def answer(self, question: FurtherQuestion, now: float) -> RegionResponse:
        """The answers to the lots that the question names. Raises CannotGoOn."""
        answered, region = self._round, self._memory.region.region
        if answered is None or answered.number != question.round_number:
            raise CannotGoOn(region, f"has not answered round {question.round_number} in this session")
        first, last = len(question.winners), len(question.winners) + len(question.expected_winners)
        if last > len(answered.lots):
            raise CannotGoOn(region, f"knows {len(answered.lots)} lots of round {answered.number}, not {last}")
        if self._questions == MOST_QUESTIONS:
            raise CannotGoOn(region, f"is asked by {MOST_QUESTIONS} others already")
        won = [lot for lot, winner in zip(answered.lots, question.winners, strict=False) if winner == region]
        lots = tuple(
            lot._replace(expected_winner=expected)
            for lot, expected in zip(answered.lots[first:last], question.expected_winners, strict=True)
        )
        further = replace(answered, lots=lots, asked=None)
        self._questions += 1
        # In a thread: leases are kept, and calls answered, however long plans take.
        try:
            return await self._memory.visits.visit(lambda: self._memory.bidder.answer(further, now, won))
        except PlaceLost as lost:
            raise CannotGoOn(region, f"has lost a place: {lost}") from lost
        finally:
            self._questions -= 1


Ask: TypeAlias = Callable[[RegionalScheduler, FurtherQuestion, float], Awaitable[RegionResponse]]
"""Asks the scheduler of another region, waiting so many real seconds at most. Raises CannotGoOn."""


class OtherRegions:
    """The regions that are asked over gRPC, with a channel to each that lasts as long as its address."""

    def __init__(self, security: TransportSecurity = PLAINTEXT) -> None:
        self._security = security
        self._channels: dict[tuple[str, FileState], grpc.aio.Channel] = {}
        """By address, and by the certificates that they were made with."""

    async def ask(self, other: RegionalScheduler, question: FurtherQuestion, patience_real_s: float) -> RegionResponse:
        """See `Ask`: the answers of a scheduler that still serves under the token that it is known by."""
        stub = regional_scheduler_pb2_grpc.RegionalSchedulerStub(self._channel(other))
        try:
            response = await stub.AnswerFurther(_as_request(question), timeout=patience_real_s)
        except grpc.aio.AioRpcError as error:
            silent = error.code() in _SILENCE and patience_real_s >= _PATIENT_REAL_S
            raise CannotGoOn(other.region, f"says: {error.details() or error.code().name}", silent=silent) from error
        if response.lease_token != other.token:
            raise CannotGoOn(other.region, "answers under another lease than the round was answered under")
        return answers_from_json(other.region, question, response.answers)

    def _channel(self, other: RegionalScheduler) -> grpc.aio.Channel:
        which = other.address, self._security.state()
        if which not in self._channels:
            try:
                self._channels[which] = tier_channel(other.address, self._security)
            except CertificatesUnusable as unusable:
                raise CannotGoOn(other.region, f"cannot be called: {unusable}") from unusable
        return self._channels[which]

    async def close(self) -> None:
        """Ends all connections."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)


async def ask_all(
    ask: Ask,
    others: Sequence[RegionalScheduler],
    own: FurtherAnswers,
    question: FurtherQuestion,
    now: float,
    patience_real_s: float,
) -> list[RegionResponse]:
    """The answers of all these regions and the own one, at the same time. Raises CannotGoOn as soon as one of them does."""
    asked: list[asyncio.Future[RegionResponse]] = [
        *(asyncio.ensure_future(ask(other, question, patience_real_s)) for other in others),
        asyncio.ensure_future(own.answer(question, now)),
    ]
    try:
        done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_EXCEPTION)
        return [one.result() for one in asked if one in done]
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


def answers_from_json(region: RegionId, question: FurtherQuestion, document: bytes) -> RegionResponse:
    """The answers as they came. Raises CannotGoOn for what is none to this question: nobody ends by what another region says."""
    asked = len(question.expected_winners)
    try:
        response = response_from_document(question.round_number, region, json.loads(document))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CannotGoOn(region, f"answers what cannot be read: {error!r}") from error
    if len(response.answers) != asked:
        raise CannotGoOn(region, f"gives {len(response.answers)} answers to {asked} lots")
    if response.alike and len(response.alike) != asked:
        raise CannotGoOn(region, f"says of {len(response.alike)} lots, not {asked}, which are alike")
    return response


def question_from_proto(request: messages.AnswerFurtherRequest) -> FurtherQuestion:
    """The question as it came."""
    return FurtherQuestion(request.round, _regions(request.winners), _regions(request.expected_winners))


def answers_to_proto(response: RegionResponse, lease_token: int) -> messages.AnswerFurtherResponse:
    """The answers as they go out."""
    return messages.AnswerFurtherResponse(
        lease_token=lease_token, answers=json.dumps(response_document(response)).encode()
    )


def _as_request(question: FurtherQuestion) -> messages.AnswerFurtherRequest:
    return messages.AnswerFurtherRequest(
        round=question.round_number,
        winners=[winner or "" for winner in question.winners],
        expected_winners=[expected or "" for expected in question.expected_winners],
    )


def _regions(names: Sequence[str]) -> tuple[RegionId | None, ...]:
    return tuple(RegionId(name) if name else None for name in names)
