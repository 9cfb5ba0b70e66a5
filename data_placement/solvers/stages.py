"""The stages of the search beyond hill climbing, one after the other, and where it is when it is stopped.

Rule: a stage begins where the one before it has ended and never ends worse. Which single tables, communities and
jobs gain nothing any more, the random steps change, and then they gain again; so the stages come in turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray

from data_placement.communities import communities_of
from data_placement.objective.group_moves import group_scratch_of
from data_placement.objective.placement_state import scratch_of, total_cost
from data_placement.objective.relaxed_limits import relaxed_limits
from data_placement.solvers.chain_moves import LONGEST, move_chains, weightiest_groups
from data_placement.solvers.forced_moves import EXCEEDING, Trials, force_group, more_trials, no_trials
from data_placement.solvers.gathering import (
    Groups,
    gather_groups,
    groups_of_jobs,
    no_groups,
    pieces_of_communities,
    room_for,
)
from data_placement.solvers.plan import CHUNK, PlacementTask, Progress, SavedSearch
from data_placement.solvers.saved_search import packed, unpacked
from data_placement.solvers.search_steps import LARGEST_GROUP, Search, return_to_best, search_steps
from data_placement.solvers.single_moves import MOST_ROUNDS, Climb
from domain.warehouse import Indices

_GROUPS_CHUNK = 2_000
"""Groups between two looks at whether to go on; a group costs as much as many tables."""
_CHAINS_CHUNK = 5
"""Groups between two looks at whether to go on, each tried with all others."""
_PATIENCE_LENGTHS = 10
"""A search that has found nothing better in so many lengths of its history is heated."""


class Stage(StrEnum):
    """What a stage does; the value is what people are told."""

    CLIMB = "hill climbing"
    COMMUNITIES = "moving communities of tables"
    JOBS = "moving jobs with their tables"
    CHAINS = "moving chains of tables"
    FORCE = "forcing moves of tables"
    SEARCH = "searching for better placements"


@dataclass(slots=True)
class StagedSearch:
    """A search in progress. `steps`: of each search stage."""

    climb: Climb
    stages: tuple[Stage, ...]
    steps: int
    history_length: int
    seed: int
    number: int = 0
    """Of the present stage"""
    begun: bool = False
    """Whether the present stage has its groups, or its search."""
    groups: Groups = field(default_factory=no_groups)
    position: int = 0
    """In the groups"""
    trials: Trials = field(default_factory=no_trials)
    """Of forced moves"""
    search: Search | None = None
    community: Indices | None = None
    """(T,) once they are known"""

    @classmethod
    def started(
        cls, task: PlacementTask, stages: tuple[Stage, ...], steps: int, history_length: int, seed: int
    ) -> Self:
        """Before anything has moved."""
        return cls(Climb.begun(task), stages, steps, history_length, seed)

    @classmethod
    def resumed(
        cls, task: PlacementTask, saved: SavedSearch, stages: tuple[Stage, ...], steps: int, history_length: int
    ) -> Self:
        """Where it was when it was stopped."""
        number, begun, position, seed = saved["stages.place"].tolist()
        found = cls(Climb.resumed(task, saved), stages, steps, history_length, int(seed), int(number), bool(begun))
        found.groups, found.position = unpacked("groups", no_groups(), saved), int(position)
        found.trials = unpacked("trials", no_trials(), saved)
        if "search.step" in saved:
            found.search = unpacked("search", found._new_search(), saved)
        return found

    def saved(self) -> dict[str, NDArray[np.generic]]:
        """All that is needed to go on."""
        return {
            **self.climb.saved(),
            **packed("groups", self.groups),
            **packed("trials", self.trials),
            **({} if self.search is None else packed("search", self.search)),
            "stages.place": np.array([self.number, self.begun, self.position, self.seed], np.int64),
        }

    def run(self, progress: Progress) -> bool:
        """Goes through the stages that are left; returns False when it was stopped before."""
        while self.number < len(self.stages):
            stage = self.stages[self.number]
            if not self.begun:
                if not progress(f"stage {self.number + 1} of {len(self.stages)}, {stage}", 0.0):
                    return False
                self._begin(stage)
            if not self._go_on(stage, progress):
                return False
            self.number, self.begun = self.number + 1, False
        return True

    def communities(self) -> Indices:
        """(T,) the communities that seed the search."""
        if self.community is None:
            self.community = communities_of(self.climb.problem, self.seed)
        return self.community

    def end_early(self) -> None:
        """Goes back to the best placement that was met, for a search that was stopped."""
        if self.search is not None:
            problem = self.climb.problem
            return_to_best(problem, self.climb.state, scratch_of(problem), self.climb.budget, self.search)

    def _begin(self, stage: Stage) -> None:
        problem, state = self.climb.problem, self.climb.state
        self.begun, self.position = True, 0
        if stage is Stage.CLIMB:
            self.climb.begin_anew()
        elif stage is Stage.COMMUNITIES:
            self.groups = pieces_of_communities(self.communities(), state)
        elif stage is Stage.JOBS:
            self.groups = groups_of_jobs(problem)
        elif stage in (Stage.CHAINS, Stage.FORCE):
            self.groups, self.trials = weightiest_groups(problem), no_trials()
        else:
            self.search = self._new_search()

    def _go_on(self, stage: Stage, progress: Progress) -> bool:
        """To the end of the stage; returns False when it was stopped before."""

        def told(what: str, done: float) -> bool:
            return progress(f"stage {self.number + 1} of {len(self.stages)}, {what}", done)

        if stage is Stage.CLIMB:
            return self.climb.run(MOST_ROUNDS, told)
        if stage is Stage.SEARCH:
            return self._search(stage, told)
        if stage is Stage.FORCE:
            return self._force(stage, told)
        return self._chain(stage, told) if stage is Stage.CHAINS else self._gather(stage, told)

    def _gather(self, stage: Stage, progress: Progress) -> bool:
        problem, state, order = self.climb.problem, self.climb.state, self.groups.order
        scratch, group, room = scratch_of(problem), group_scratch_of(problem), room_for(self.groups)
        while self.position < len(order):
            if not progress(stage, self.position / len(order)):
                return False
            last = min(len(order), self.position + _GROUPS_CHUNK)
            budget, ledger = self.climb.budget, self.climb.ledger
            gather_groups(problem, state, scratch, group, budget, ledger, self.groups, room, self.position, last)
            self.position = last
        self.groups = no_groups()
        return True

    def _chain(self, stage: Stage, progress: Progress) -> bool:
        problem, state, order, groups = self.climb.problem, self.climb.state, self.groups.order, self.groups
        scratch, group, budget, ledger = (
            scratch_of(problem),
            group_scratch_of(problem),
            self.climb.budget,
            self.climb.ledger,
        )
        room, best = room_for(groups, together=LONGEST), room_for(groups, together=LONGEST)
        homes = np.zeros_like(state.home)
        while self.position < len(order):
            if not progress(stage, self.position / len(order)):
                return False
            first, last = self.position, min(len(order), self.position + _CHAINS_CHUNK)
            move_chains(problem, state, scratch, group, budget, ledger, groups, room, best, homes, first, last)
            self.position = last
        self.groups = no_groups()
        return True

    def _force(self, stage: Stage, progress: Progress) -> bool:
        problem, state, groups, trials = self.climb.problem, self.climb.state, self.groups, self.trials
        scratch, group, room = scratch_of(problem), group_scratch_of(problem), room_for(groups)
        homes, held = state.home.copy(), np.zeros(len(state.home), np.bool_)
        while more_trials(trials, groups):
            idle = int(trials.tried[0] - trials.gained[0])
            if not progress(stage, idle / len(groups.order)):
                return False
            limits = relaxed_limits(problem, state, EXCEEDING * total_cost(state))
            force_group(problem, state, scratch, group, self.climb.budget, limits, groups, room, homes, held, trials)
        self.groups = no_groups()
        return True

    def _search(self, stage: Stage, progress: Progress) -> bool:
        problem, state, budget, search = self.climb.problem, self.climb.state, self.climb.budget, self.search
        if search is None or len(state.home) == 0 or problem.regions < 2:
            return True
        scratch, group = scratch_of(problem), group_scratch_of(problem)
        while search.step[0] < self.steps:
            if not progress(stage, float(search.step[0]) / self.steps):
                return False
            search_steps(problem, state, scratch, group, budget, search, min(CHUNK, self.steps - int(search.step[0])))
        return_to_best(problem, state, scratch, budget, search)
        self.search = None
        return True

    def _new_search(self) -> Search:
        """A search before its first step; each stage has a seed of its own."""
        state = self.climb.state
        tables, cost = len(state.home), total_cost(state)
        length = max(self.history_length, tables // 2)
        seed = np.random.SeedSequence([self.seed, self.number]).generate_state(1, np.uint64)
        return Search(
            history=np.full(length, cost),
            step=np.zeros(1, np.int64),
            best=np.array([cost]),
            heated=np.array([-_PATIENCE_LENGTHS * length, 0], np.int64),
            patience=_PATIENCE_LENGTHS * length,
            random=seed | np.uint64(1),
            group=np.zeros(LARGEST_GROUP, np.int32),
            group_source=np.zeros(LARGEST_GROUP, np.int32),
            group_target=np.zeros(LARGEST_GROUP, np.int32),
            seen_table=np.full(tables, -1, np.int64),
            journal_table=np.zeros(max(100_000, tables), np.int32),
            journal_source=np.zeros(max(100_000, tables), np.int32),
            journal_length=np.zeros(1, np.int64),
        )
