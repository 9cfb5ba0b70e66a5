"""Regions of one process, which ask each other on without a network between them."""

from __future__ import annotations

from domain.identifiers import RegionId
from regional_scheduler.rounds import RegionResponse
from services.database.lease_store import RegionalScheduler
from services.regional_scheduler.auctioneering import Auctioneer
from services.regional_scheduler.further_answers import CannotGoOn, FurtherQuestion


class RegionsOfOneProcess:
    """Whoever was added can be asked; of all others nothing is heard."""

    def __init__(self) -> None:
        self.auctioneers: dict[RegionId, Auctioneer] = {}
        self.asked = 0
        """How often one was asked on."""

    def add(self, region: RegionId, auctioneer: Auctioneer) -> None:
        self.auctioneers[region] = auctioneer

    async def ask(self, other: RegionalScheduler, question: FurtherQuestion, patience_real_s: float) -> RegionResponse:
        auctioneer = self.auctioneers.get(other.region)
        if auctioneer is None:
            raise CannotGoOn(other.region, "is away")
        self.asked += 1
        return await auctioneer.further_answers.answer(question, 0.0)
