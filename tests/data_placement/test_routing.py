"""Ways over links, and how their bandwidth is shared out."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_placement.links import Links
from data_placement.migrations.bandwidth import Transfer, committed_bytes, share_out, transfers_of
from data_placement.migrations.migration import Migration, RoutePart
from data_placement.routing import NoRoute, route, seconds_of
from domain.identifiers import RegionId, TableId
from tests.examples import examples

A, B, C, D = map(RegionId, "abcd")
ALL = (A, B, C, D)
NO_LIMIT: dict[RegionId, float] = {}


def links(**rates: float) -> Links:
    """`ab=5.0`: five bytes a second from a to b; no others."""
    return Links({(RegionId(pair[0]), RegionId(pair[1])): rate for pair, rate in rates.items()}, 0.0)


def test_a_small_copy_goes_directly() -> None:
    there = links(ab=5.0, ac=50.0, cb=50.0)
    assert route(100, [A], B, ALL, there, NO_LIMIT) == (RoutePart((A, B), 100),)


def test_a_large_copy_takes_all_links_that_help() -> None:
    there = links(ab=10.0, ac=10.0, cb=10.0)
    parts = route(100_000, [A], B, ALL, there, NO_LIMIT)
    assert [part.path for part in parts] == [(A, B), (A, C, B)]
    assert sum(part.bytes for part in parts) == 100_000
    assert seconds_of(parts, there) < 100_000 / 10.0


def test_regions_on_the_way_hold_no_more_than_they_can() -> None:
    there = links(ac=10.0, cb=10.0, ad=1.0, db=1.0)
    parts = route(1_000, [A], B, ALL, there, {C: 400.0})
    assert parts == (RoutePart((A, C, B), 400), RoutePart((A, D, B), 600))
    with pytest.raises(NoRoute, match="have no room for what would go over them"):
        route(1_000, [A], B, ALL, there, {C: 400.0, D: 10.0})


def test_replicas_give_too() -> None:
    there = links(ab=1.0, cb=9.0)
    parts = route(18_000, [A, C], B, ALL, there, NO_LIMIT)
    assert {part.path[0] for part in parts} == {A, C}
    assert seconds_of(parts, there) < 18_000 / 9.0


def test_a_link_that_is_busy_is_avoided() -> None:
    there = links(ab=10.0, cb=9.0)
    assert route(100, [A, C], B, ALL, there, NO_LIMIT) == (RoutePart((A, B), 100),)
    assert route(100, [A, C], B, ALL, there, NO_LIMIT, {(A, B): 1_000.0}) == (RoutePart((C, B), 100),)


def test_nothing_leads_there() -> None:
    with pytest.raises(NoRoute, match="no link with any bandwidth leads from a to b"):
        route(1, [A], B, ALL, links(ac=1.0), NO_LIMIT)
    with pytest.raises(NoRoute, match="none holds one that can be read"):
        route(1, [A], B, ALL, links(ab=1.0), NO_LIMIT, away=(A,))


def test_an_empty_table_has_a_way() -> None:
    assert route(0, [A], B, ALL, links(ac=1.0, cb=1.0), NO_LIMIT) == (RoutePart((A, C, B), 0),)


def test_links_are_no_negative_numbers() -> None:
    with pytest.raises(ValueError, match="the link from a to b has -1"):
        links(ab=-1.0)


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_never_more_over_a_region_than_it_has_room_for(data: st.DataObject) -> None:
    rates = {pair: data.draw(st.integers(0, 9)) * 1.0 for pair in itertools.permutations(ALL, 2)}
    free = {region: data.draw(st.integers(0, 5_000)) * 1.0 for region in (C, D)}
    size = data.draw(st.integers(0, 10_000))
    there = Links(rates)
    holders = data.draw(st.sampled_from([[A], [A, C]]))
    try:
        parts = route(size, holders, B, ALL, there, free)
    except NoRoute:
        assert not any(rates[holder, B] for holder in holders)
        return
    assert sum(part.bytes for part in parts) == size
    assert parts == route(size, holders, B, ALL, there, free)
    over: dict[RegionId, int] = {}
    for part in parts:
        assert part.path[0] in holders
        assert part.path[-1] == B
        assert all(rates[link] > 0 for link in part.links)
        for region in part.path[1:-1]:
            over[region] = over.get(region, 0) + part.bytes
    assert all(taken <= free[region] for region, taken in over.items())


# ---------------------------------------------------------------- bandwidth


def copy(number: int, *parts: RoutePart, deadline_s: float | None = None, priority: int = 0) -> Migration:
    size = sum(part.bytes for part in parts)
    return Migration(number, TableId(f"t{number}"), size, B, None, priority, deadline_s, parts=parts, copy_bytes=size)


def test_deadlines_go_first_and_the_background_keeps_its_share() -> None:
    there = links(ab=100.0)
    over = RoutePart((A, B), 10)
    late, soon = copy(1, over, deadline_s=90.0, priority=3), copy(2, over, deadline_s=50.0, priority=3)
    urgent, bulk = copy(3, over, deadline_s=99.0), copy(4, over)
    transfers = transfers_of([bulk, late, soon, urgent])
    assert [transfer.migration for transfer in transfers] == [3, 2, 1, 4]
    assert share_out(transfers, there) == {(3, 0): 90.0, (2, 0): 0.0, (1, 0): 0.0, (4, 0): 10.0}
    assert share_out(transfers[:3], there)[3, 0] == 100.0
    assert committed_bytes([late, bulk]) == {(A, B): 20.0}


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
def test_never_more_over_a_link_than_it_carries_and_none_left_idle(data: st.DataObject) -> None:
    there = Links({pair: data.draw(st.integers(0, 9)) * 1.0 for pair in itertools.permutations((A, B, C), 2)})
    paths = st.sampled_from([((A, B),), ((A, C), (C, B)), ((C, B),), ((B, A),)])
    transfers = [Transfer(number, 0, data.draw(paths), number >= 4) for number in range(data.draw(st.integers(0, 8)))]
    granted = share_out(transfers, there)
    used: dict[tuple[RegionId, RegionId], float] = {}
    for transfer in transfers:
        for link in transfer.links:
            used[link] = used.get(link, 0.0) + granted[transfer.migration, 0]
    for link, rate in used.items():
        assert rate <= there.rate(*link) + 1e-9
    for transfer in transfers:
        assert any(used[link] >= there.rate(*link) - 1e-9 for link in transfer.links)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 15)), min_size=1, max_size=5))
def test_never_a_missed_deadline_that_another_order_meets(jobs: list[tuple[int, int]]) -> None:
    """On one link: what fluid sharing finishes in time is what some order of one after the other does."""
    there = links(ab=1.0)
    feasible = any(
        all(
            end <= jobs[place][1]
            for place, end in zip(order, itertools.accumulate(jobs[place][0] for place in order), strict=True)
        )
        for order in itertools.permutations(range(len(jobs)))
    )
    left = {number: float(size) for number, (size, _) in enumerate(jobs)}
    now, met = 0.0, True
    while left:
        migrations = [copy(each, RoutePart((A, B), jobs[each][0]), deadline_s=float(jobs[each][1])) for each in left]
        granted = share_out(transfers_of(migrations), there)
        step = min(left[number] / granted[number, 0] for number in left if granted[number, 0] > 0)
        now += step
        for number in sorted(left):
            left[number] -= granted[number, 0] * step
            if left[number] <= 1e-9:
                del left[number]
                met = met and now <= jobs[number][1] + 1e-9
    assert met == feasible
