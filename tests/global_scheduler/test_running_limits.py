"""Limits of running workloads in a scan pass: who is kept back, and what is written of them."""

from dataclasses import replace

from domain.tenant import Tenant
from domain.tenant_limits import TenantLimits
from global_scheduler.scan_pass import scan_pass
from tests.global_scheduler.scan_worlds import LiveRow, Queued, ScanWorld, tenant


def _limited(one: Tenant, max_running: int) -> Tenant:
    return replace(one, limits=TenantLimits(max_running=max_running))


def _queued(name: str, owner: str, submitted_s: float, gpus: int = 1) -> Queued:
    return Queued(name, owner, submitted_s, {"any": gpus})


ADS, VISION = tenant("ads", any=100), tenant("vision", any=2)
QUEUED = tuple(_queued(f"{owner}{number}", owner, float(number)) for number in range(5) for owner in ("ads", "vision"))


def test_the_first_in_the_order_start_and_all_that_is_live_counts() -> None:
    live = (
        LiveRow("a-live", "ads", 0.0, {"any": 1}, within_quota=True, priority=1),
        LiveRow("a-leaving", "ads", 0.0, {"any": 1}, within_quota=True, priority=1, leaving=True),
    )
    view = ScanWorld((_limited(ADS, 4), VISION), QUEUED, live).view()
    plan = scan_pass(view, 100.0)
    assert plan.at_limit is not None
    kept_back = {view.pending.workloads[entry] for entry in range(len(view.pending)) if plan.at_limit[entry]}
    assert kept_back == {"ads2", "ads3", "ads4"}
    assert [
        view.pending.workloads[entry] for entry in plan.in_auctions.tolist() if view.pending.tenant[entry] == 0
    ] == [
        "ads0",
        "ads1",
    ]
    # Whoever is over quota stands behind all that is within it, also among those of its own tenant.
    greedy = (_queued("big", "vision", -1.0, gpus=3), *QUEUED)
    view = ScanWorld((ADS, _limited(VISION, 2)), greedy).view()
    plan = scan_pass(view, 100.0)
    started = [view.pending.workloads[entry] for entry in plan.in_auctions.tolist() if view.pending.tenant[entry] == 1]
    assert started == ["vision0", "vision1"]


def test_nothing_is_kept_back_without_limits_and_everything_by_none() -> None:
    plan = scan_pass(ScanWorld((ADS, VISION), QUEUED).view(), 100.0)
    assert plan.at_limit is None
    assert plan.in_auctions.tolist() == plan.order.tolist()
    live = (LiveRow("a-live", "ads", 0.0, {"any": 1}, within_quota=True, priority=1),)
    view = ScanWorld((_limited(ADS, 0), VISION), QUEUED, live).view()
    assert {view.tenants.ids[view.pending.tenant[entry]] for entry in scan_pass(view, 1.0).in_auctions} == {"vision"}


def test_what_is_kept_back_is_written_when_that_begins_and_when_it_ends() -> None:
    world = ScanWorld((_limited(ADS, 2), VISION), QUEUED)
    first = scan_pass(world.view(), 100.0)
    assert len(first.changed) == len(QUEUED)
    assert first.at_limit is not None

    def again(max_running: int) -> list[str]:
        """What the next pass writes of the tenant, while all credits grow."""
        view = replace(world, tenants=(_limited(ADS, max_running), VISION)).view()
        view.pending.stored.at_limit = first.at_limit
        plan = scan_pass(view, 200.0)
        return [view.pending.workloads[entry] for entry in plan.changed.tolist() if view.pending.tenant[entry] == 0]

    assert again(2) == ["ads0", "ads1"]
    assert again(3) == ["ads0", "ads1", "ads2"]
    assert again(1) == ["ads0", "ads1"]
