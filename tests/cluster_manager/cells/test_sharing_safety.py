"""Sharing is safe (HiveD §2, §3.1): what a private cluster of its shape could place at once, the shared one does too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from cluster_manager.cells.cell_cluster import CellCluster
from cluster_manager.cells.decisions import decide
from cluster_manager.cells.invariants import check_cells
from cluster_manager.cells.requests import CellRequest, InvalidRequest
from cluster_manager.cells.work import Placement, Wait
from domain.identifiers import VirtualClusterId
from tests.cluster_manager.cells.worlds import Choices, Setting, choices, random_request, random_setting, state_of


class SharedAndPrivate:
    """One shared cluster, and for each virtual cluster a private one that gets the same guaranteed requests."""

    def __init__(self, setting: Setting) -> None:
        self.shared = setting.cluster()
        self.private = {owner.virtual_cluster: setting.private(owner.virtual_cluster) for owner in setting.owners}

    def submit(self, request: CellRequest) -> None:
        before = state_of(self.shared)
        try:
            answer = decide(self.shared, request)
        except InvalidRequest:
            return
        assert state_of(self.shared) == before, "a decision changes nothing"
        if request.virtual_cluster is not None:
            self._compare(request.virtual_cluster, request, answer)
        elif isinstance(answer, Placement):
            assert not answer.waits_for, "opportunistic work evicts nothing"
        if isinstance(answer, Placement):
            self._commit(self.shared, answer)
        check_cells(self.shared)

    def _compare(self, name: VirtualClusterId, request: CellRequest, answer: Placement | Wait) -> None:
        """Alike in the private cluster: the same answer, and the same virtual cells."""
        private = decide(self.private[name], request)
        if isinstance(private, Wait):
            assert isinstance(answer, Wait)
            assert answer.reason is private.reason
            return
        assert isinstance(answer, Placement), "it would have been placed in the private cluster"
        virtual = [[pair[:2] for pair in task.pairs] for task in answer.tasks]
        assert virtual == [[pair[:2] for pair in task.pairs] for task in private.tasks]
        for key in answer.victims:
            victim = self.shared.work[key]
            own = victim.request.virtual_cluster == name and request.standing < victim.request.standing
            assert victim.view is None or own, "only one's own work and opportunistic work makes room"
        self._commit(self.private[name], private)

    def _commit(self, cells: CellCluster, placement: Placement) -> None:
        cells.commit(placement)
        for key in placement.victims:
            cells.release(key)

    def release(self, key: str) -> None:
        for cells in (self.shared, *self.private.values()):
            if key in cells.work:
                cells.release(key)
        check_cells(self.shared)

    def keys(self) -> Iterator[str]:
        return (str(key) for key in self.shared.work)


def run_random_sequence(choose: Choices) -> None:
    setting = random_setting(choose)
    world = SharedAndPrivate(setting)
    for number in range(16):
        running = list(world.keys())
        if running and choose.one_in(4):
            world.release(choose.of(running))
        else:
            world.submit(random_request(choose, setting, f"w{number}"))
    for key in list(world.keys()):
        world.release(key)
    empty = setting.cluster()
    assert [buddy.layout() for buddy in world.shared.buddies] == [buddy.layout() for buddy in empty.buddies]


@settings(max_examples=500)
@given(choices())
def test_never_waits_for_others_where_a_private_cluster_would_place(choose: Choices) -> None:
    run_random_sequence(choose)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@settings(max_examples=10_000)
@given(choices())
def test_never_waits_for_others_in_a_long_search(choose: Choices) -> None:
    run_random_sequence(choose)
