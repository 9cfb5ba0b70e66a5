"""A tenant orders its own workloads by class, in the places that they have together: nobody gains over others by it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from global_scheduler.scan_pass import scan_pass
from global_scheduler.scan_plan import ScanPlan
from global_scheduler.scan_view import ScanView
from global_scheduler.view_builder import PendingRows, build_scan_view
from tests.global_scheduler.scan_worlds import Queued, ScanWorld, pending_rows, running_rows, tenant

NOW = 20_000.0
Classes = dict[str, int]

ADS, BIO = tenant("ads", any=4), tenant("bio", any=4)


def scanned(world: ScanWorld, classes: Classes) -> tuple[ScanView, ScanPlan]:
    rows = with_classes(pending_rows(world.queued), classes)
    use = {one.tenant: use for one in world.tenants for name, use in world.use if name == one.tenant}
    view = build_scan_view(world.tenants, use, running_rows(world.live), rows, world.settings)
    return view, scan_pass(view, NOW)


def with_classes(rows: PendingRows, classes: Classes) -> PendingRows:
    return replace(
        rows, importance={row: classes[name] for row, name in enumerate(rows.workloads) if classes.get(name)}
    )


def order_of(world: ScanWorld, classes: Classes) -> list[str]:
    view, plan = scanned(world, classes)
    return [str(view.pending.workloads[row]) for row in plan.order.tolist()]


def queued(name: str, owner: str, submitted_s: float, gpus: int = 1) -> Queued:
    return Queued(name, owner, submitted_s, {"A100": gpus})


def test_the_more_important_goes_first_in_the_place_of_the_less_important() -> None:
    world = ScanWorld(
        (ADS, BIO),
        (
            queued("a1", "ads", 0.0),
            queued("b1", "bio", 4_000.0),
            queued("a2", "ads", 8_000.0),
            queued("b2", "bio", 12_000.0),
        ),
    )
    assert order_of(world, {}) == ["a1", "b1", "a2", "b2"]
    assert order_of(world, {"a2": 1}) == ["a2", "b1", "a1", "b2"]
    assert order_of(world, {"a1": -1}) == ["a2", "b1", "a1", "b2"]
    assert order_of(world, {"a1": 1, "b2": 1}) == ["a1", "b2", "a2", "b1"]


def test_it_goes_first_also_where_credit_is_the_same() -> None:
    """Submitted within one minute, they have one credit, and the submit time decides: nobody can be given another one."""
    world = ScanWorld((ADS,), tuple(queued(f"a{number}", "ads", float(number)) for number in range(4)))
    assert order_of(world, {"a3": 1, "a0": -1}) == ["a3", "a1", "a2", "a0"]


def test_the_quota_goes_to_the_more_important_first() -> None:
    world = ScanWorld((ADS,), (queued("a1", "ads", 0.0, 4), queued("a2", "ads", 100.0, 4)))
    for classes, within in (({}, {"a1"}), ({"a2": 1}, {"a2"})):
        view, plan = scanned(world, classes)
        assert {
            str(name) for name, fits in zip(view.pending.workloads, plan.within_quota, strict=True) if fits
        } == within
        assert order_of(world, classes)[0] in within


@st.composite
def worlds(draw: st.DrawFn) -> ScanWorld:
    """Up to three tenants; often the same credit, so that ties are decided by times and names."""
    owners = (tenant("ads", any=6), tenant("bio", any=6), tenant("cat", priority=2, any=3))
    rows = tuple(
        queued(
            f"{draw(st.sampled_from('xyz'))}{number:02}",
            draw(st.sampled_from(("ads", "bio", "cat"))),
            draw(st.sampled_from((0.0, 10.0, 20.0, 61.0, 3_600.0, 7_200.0)) | st.floats(0.0, NOW)),
            draw(st.sampled_from((0, 1, 2, 4))),
        )
        for number in range(draw(st.integers(1, 12)))
    )
    return ScanWorld(owners, rows)


@given(worlds(), st.data())
def test_nobody_gains_over_others_and_each_tenant_gets_the_order_that_it_wants(
    world: ScanWorld, data: st.DataObject
) -> None:
    chosen = data.draw(st.sampled_from(("ads", "bio", "cat")))
    classes = {
        row.workload: data.draw(st.sampled_from((-1, 0, 1)), label=row.workload)
        for row in world.queued
        if row.tenant == chosen
    }
    owner = {row.workload: row.tenant for row in world.queued}
    view, plan = scanned(world, classes)
    after = [str(view.pending.workloads[row]) for row in plan.order.tolist()]
    standing = {
        str(name): (int(plan.priority[row]), int(plan.level[row])) for row, name in enumerate(view.pending.workloads)
    }
    # 1. Within a standing the tenant's own stand by class.
    for wanted in set(standing.values()):
        own = [classes[name] for name in after if owner[name] == chosen and standing[name] == wanted]
        assert own == sorted(own, reverse=True)
    # 2. Nobody else stands, is ranked among themselves, or is within quota, in any other way.
    plain_view, plain = scanned(world, {})
    others_before = [str(plain_view.pending.workloads[row]) for row in plain.order.tolist()]
    assert [name for name in after if owner[name] != chosen] == [
        name for name in others_before if owner[name] != chosen
    ]
    # 3. Where the same of the tenant's are within quota, nobody else stands behind more of them than before.
    stands_alike = (plain.within_quota == plan.within_quota).all()
    if stands_alike:
        for place, name in enumerate(after):
            if owner[name] == chosen:
                continue
            ahead = sum(owner[other] == chosen for other in after[:place])
            assert ahead <= sum(owner[other] == chosen for other in others_before[: others_before.index(name)])


@given(worlds())
def test_one_class_for_all_of_a_tenant_changes_nothing(world: ScanWorld) -> None:
    for importance in (-1, 1):
        classes = {row.workload: importance for row in world.queued}
        assert order_of(world, classes) == order_of(world, {})
        view, plan = scanned(world, classes)
        _, plain = scanned(world, {})
        assert (plan.credit == plain.credit).all()
        assert (plan.exceeded_bucket == plain.exceeded_bucket).all()
        assert view.pending.importance is not None


@given(worlds(), st.data())
def test_within_quota_demand_never_exceeds_the_quota(world: ScanWorld, data: st.DataObject) -> None:
    classes = {row.workload: data.draw(st.sampled_from((-1, 0, 1))) for row in world.queued}
    view, plan = scanned(world, classes)
    for one in world.tenants:
        gpus = sum(
            next(row.gpus["A100"] for row in world.queued if row.workload == name)
            for place, name in enumerate(view.pending.workloads)
            if plan.within_quota[place] and view.tenants.ids[view.pending.tenant[place]] == one.tenant
        )
        (limit,) = (count for _, count in one.quota.gpus)
        assert gpus <= limit
