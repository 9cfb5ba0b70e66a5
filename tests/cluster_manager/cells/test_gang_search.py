"""The search for a gang against trying everything, and which GPUs of a node a task gets."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings

from cluster_manager.cells.gang import FreeGpus, NodePlace, find_places
from cluster_manager.cells.hierarchy import Chain, UnknownLevel
from cluster_manager.cells.node_gpus import NodeShape, choose_gpus, tasks_that_fit
from cluster_manager.cells.nodes import Nodes
from cluster_manager.cells.requests import AffinityGroup, Tasks
from domain.affinity import CellAffinity
from tests.cluster_manager.cells.worlds import Choices, chain_of, choices, random_chain, random_gang
from tests.examples import examples


def random_free(choose: Choices, chain: Chain) -> FreeGpus:
    levels = sorted(1 + choose.below(chain.top) for _ in range(1 + choose.below(3)))
    nodes = Nodes(chain, levels)
    bits = [full & ~(choose.below(256) | choose.below(256) << 8) for full in nodes.full]
    return FreeGpus.of(nodes, bits)


@settings(max_examples=examples(300))
@given(choices(120))
def test_never_misses_a_place_that_trying_everything_finds(choose: Choices) -> None:
    splits = tuple(2 for _ in range(1 + choose.below(3)))
    chain = chain_of(splits, 1 + choose.below(len(splits) + 1), 1)
    free = random_free(choose, chain)
    gang = random_gang(choose, chain)
    before = list(free.bits)
    hard = _hard_only(gang)
    if hard.gpus > 6:
        return
    found = find_places(hard, FreeGpus.of(free.nodes, list(before)))
    assert (found is not None) == _exists(hard, free.nodes, before)
    relaxed = find_places(gang, free)
    assert (relaxed is not None) == (found is not None), "a preference never costs the place"
    if relaxed is None:
        assert free.bits == before
        assert free.counts.tolist() == [bits.bit_count() for bits in before]


@settings(max_examples=examples(200))
@given(choices())
def test_never_places_a_task_where_it_may_not_be(choose: Choices) -> None:
    chain = random_chain(choose, "chain")
    free = random_free(choose, chain)
    gang = random_gang(choose, chain)
    before = list(free.bits)
    found = find_places(gang, free)
    if found is None:
        return
    left = list(before)
    sizes = [tasks.gpus for tasks in gang.all_tasks() for _ in range(tasks.count)]
    for (node, bits), gpus in zip(found, sizes, strict=True):
        assert bits.bit_count() == gpus
        assert bits & left[node] == bits
        left[node] &= ~bits
    assert _is_close(gang, list(found), free.nodes)


def _hard_only(gang: AffinityGroup) -> AffinityGroup:
    """The gang without what is only preferred."""

    def kept(affinity: CellAffinity | None) -> CellAffinity | None:
        return affinity if affinity is not None and affinity.hard else None

    tasks = tuple(Tasks(tasks.count, tasks.gpus, kept(tasks.within)) for tasks in gang.tasks)
    return AffinityGroup(tasks, kept(gang.within), tuple(_hard_only(group) for group in gang.groups))


def _gpus_of(places: list[NodePlace], nodes: Nodes) -> list[int]:
    return [nodes.first_gpu[node] + gpu for node, bits in places for gpu in range(bits.bit_length()) if bits >> gpu & 1]


def _in_one_cell(places: list[NodePlace], nodes: Nodes, affinity: CellAffinity | None) -> bool:
    """Within one cell of the level and one owned cell: that two owned cells are neighbours is nobody's promise."""
    if affinity is None or not affinity.hard:
        return True
    try:
        size = nodes.chain.sizes[nodes.chain.level_called(affinity.level)]
    except UnknownLevel:
        return False
    cells = {
        (nodes.owned[node], gpu // size) for node, _ in places for gpu in _gpus_of([NodePlace(node, 0)], nodes) or [0]
    }
    gpus = _gpus_of(places, nodes)
    return len({gpu // size for gpu in gpus}) == 1 and len({owned for owned, _ in cells}) == 1


def _is_close(gang: AffinityGroup, places: list[NodePlace], nodes: Nodes) -> bool:
    places = list(places)
    if not _in_one_cell(places, nodes, gang.within):
        return False
    for tasks in gang.tasks:
        own, places = places[: tasks.count], places[tasks.count :]
        if not all(_in_one_cell([place], nodes, tasks.within) for place in own):
            return False
    for group in gang.groups:
        count = sum(tasks.count for tasks in group.all_tasks())
        own, places = places[:count], places[count:]
        if not _is_close(group, own, nodes):
            return False
    return True


def _exists(gang: AffinityGroup, nodes: Nodes, free: list[int]) -> bool:
    sizes = [tasks.gpus for tasks in gang.all_tasks() for _ in range(tasks.count)]

    def tried(places: list[NodePlace]) -> bool:
        if len(places) == len(sizes):
            return _is_close(gang, places, nodes)
        for node, bits in enumerate(free):
            gpus = [gpu for gpu in range(bits.bit_length()) if bits >> gpu & 1]
            for chosen in combinations(gpus, sizes[len(places)]):
                taken = sum(1 << gpu for gpu in chosen)
                free[node] &= ~taken
                there = tried([*places, NodePlace(node, taken)])
                free[node] |= taken
                if there:
                    return True
        return False

    return tried([])


MANY_MACHINES = 1_000


def large_nodes() -> Nodes:
    chain = chain_of((2, 2, 2, 8), 4, MANY_MACHINES // 8)
    return Nodes(chain, [chain.top] * (MANY_MACHINES // 8))


@pytest.mark.parametrize("count", [900, 1_000, 4_000])
def test_places_many_groups_that_are_alike(count: int) -> None:
    nodes = large_nodes()
    pair = AffinityGroup((Tasks(2, 1),), CellAffinity("node"))
    gang = AffinityGroup((), None, (pair,) * count)
    found = find_places(gang, FreeGpus.of(nodes, list(nodes.full)))
    assert found is not None
    assert _is_close(gang, list(found), nodes)
    assert len({(node, bits) for node, bits in found}) == 2 * count


def test_places_groups_of_groups_in_their_racks() -> None:
    nodes = large_nodes()
    machine = AffinityGroup((Tasks(2, 3, CellAffinity("socket")),), CellAffinity("node"))
    rack = AffinityGroup((Tasks(1, 8),), CellAffinity("rack"), (machine,) * 7)
    gang = AffinityGroup((), None, (rack,) * nodes.chain.counts[nodes.chain.top])
    found = find_places(gang, FreeGpus.of(nodes, list(nodes.full)))
    assert found is not None
    assert _is_close(gang, list(found), nodes)


def test_leaves_everything_as_it_was_where_one_group_too_many_is_asked_for() -> None:
    nodes = large_nodes()
    bits = [full & 0x7F for full in nodes.full]
    free = FreeGpus.of(nodes, list(bits))
    pair = AffinityGroup((Tasks(2, 3),), CellAffinity("node", hard=True))
    preferred = AffinityGroup((Tasks(2, 2),), CellAffinity("socket", hard=False))
    for groups in ((pair,) * (MANY_MACHINES + 1), (*(pair,) * MANY_MACHINES, preferred), (preferred,) * 1_501):
        assert find_places(AffinityGroup((), None, groups), free) is None
        assert free.bits == bits
        assert free.counts.tolist() == [free_bits.bit_count() for free_bits in bits]


SHAPES = (
    NodeShape((1, 2, 4, 8)),
    NodeShape((1, 3, 6)),
    NodeShape((1, 8)),
    NodeShape((1,)),
    NodeShape((1, 2, 4, 8, 16)),
)


@settings(max_examples=examples(300))
@given(choices(8))
def test_never_gives_a_task_gpus_of_a_larger_cell_than_it_needs(choose: Choices) -> None:
    shape = choose.of(SHAPES)
    free = (choose.below(256) | choose.below(256) << 8) & ((1 << shape.gpus) - 1)
    gpus, within = 1 + choose.below(shape.gpus), 1 + choose.below(len(shape.sizes))
    chosen = choose_gpus(shape, free, gpus, within)
    cells = [[((1 << size) - 1) << first for first in range(0, shape.gpus, size)] for size in shape.sizes[:within]]
    fitting = [level for level, masks in enumerate(cells) if any((free & mask).bit_count() >= gpus for mask in masks)]
    if not fitting:
        assert chosen == 0
        assert tasks_that_fit(shape, free, gpus, within) == 0
        return
    assert chosen.bit_count() == gpus
    assert chosen & free == chosen
    assert tasks_that_fit(shape, free, gpus, within) >= 1
    assert any(chosen & mask == chosen for mask in cells[fitting[0]])
