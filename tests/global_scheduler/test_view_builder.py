from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from domain.identifiers import GpuModel, TenantId, WorkloadId
from domain.resources import Quota, request_millicpus
from domain.tenant import UNLIMITED, Tenant
from global_scheduler.quota_buckets import millicpus_of
from global_scheduler.scan_settings import ScanSettings
from global_scheduler.scan_view import NOT_RANKED, ScanView
from global_scheduler.usage_window import WindowedUse
from global_scheduler.view_builder import PendingRows, build_scan_view
from tests.global_scheduler.scan_worlds import LiveRow, Queued, ScanWorld, pending_rows, running_rows, tenant

BIRCH = tenant("birch", priority=2, cpus=1.5, weight=2.0, H100=8, any=4)
ASH = tenant("ash", priority=3, A100=16)


def view_of(*queued: Queued, live: Sequence[LiveRow] = ()) -> ScanView:
    return ScanWorld((BIRCH, ASH), queued, tuple(live), (("birch", WindowedUse(3.0, 7.0)),)).view()


def demand_of(view: ScanView, entry: int) -> dict[str, int]:
    return {view.buckets[bucket]: amount for bucket, amount in view.pending.demand.of_row(entry)}


def test_tenants_become_rows_sorted_by_id() -> None:
    view = view_of()
    assert view.buckets == ("A100", "H100", "any", "cpus")
    assert view.tenants.ids == ("ash", "birch")
    assert view.tenants.quota.tolist() == [[16, 0, 0, UNLIMITED], [0, 8, 4, 1500]]
    assert view.tenants.fair_share_weight.tolist() == [1.0, 2.0]
    assert view.tenants.used_gpus.tolist() == [0.0, 3.0]
    assert view.tenants.used_cpus.tolist() == [0.0, 7.0]


def test_a_model_without_its_own_bucket_is_charged_to_any() -> None:
    view = view_of(
        Queued("w1", "birch", 1.0, {"H100": 2, "A100": 3, "T4": 1, "any": 1}, cpus=0.5),
        Queued("w2", "ash", 2.0, {"H100": 2, "A100": 3}),
        Queued("w3", "ash", 3.0, {"A100": 0}),
        Queued("w4", "ash", 4.0, {}, cpus=0.0001),
    )
    assert demand_of(view, 0) == {"H100": 2, "any": 5, "cpus": 500}
    assert demand_of(view, 1) == {"A100": 3, "any": 2}
    assert demand_of(view, 2) == {}
    assert demand_of(view, 3) == {"cpus": 1}


def test_rows_stand_by_time_and_name_whatever_their_order() -> None:
    rows = (
        Queued("w3", "ash", 5.0, {"A100": 3}, attained_gpu_s=3, stored=(1, 2, 0.5, True)),
        Queued("w2", "birch", 5.0, {"H100": 2}, attained_gpu_s=2),
        Queued("w1", "ash", 9.0, {"A100": 1}, attained_gpu_s=1),
        Queued("w4", "ash", 1.0, {}, attained_gpu_s=4),
    )
    pending = view_of(*rows).pending
    assert pending.workloads == ("w4", "w2", "w3", "w1")
    assert pending.tenant.tolist() == [0, 1, 0, 0]
    assert pending.known.attained_gpu_s.tolist() == [4, 2, 3, 1]
    assert pending.demand.amount.tolist() == [2, 3, 1]
    assert pending.demand.offsets.tolist() == [0, 0, 1, 2, 3]
    assert pending.stored.priority.tolist() == [NOT_RANKED, NOT_RANKED, 1, NOT_RANKED]
    assert pending.stored.level.tolist() == [0, 0, 2, 0]
    assert pending.stored.credit.tolist() == [0.0, 0.0, 0.5, 0.0]
    assert pending.stored.within_quota.tolist() == [False, False, True, False]


def test_live_attempts_stand_oldest_first_and_keep_their_charges() -> None:
    running = view_of(
        live=(
            LiveRow("r2", "birch", 7.0, {"H100": 4, "cpus": 250}, True, priority=2, attempt=3),
            LiveRow("r1", "ash", 7.0, {"any": 4, "A100": 0}, False, leaving=True),
            LiveRow("r3", "ash", 2.0, {}, True, priority=3),
        )
    ).running
    assert running.workloads == ("r3", "r1", "r2")
    assert running.attempt.tolist() == [1, 1, 3]
    assert running.started_s.tolist() == [2.0, 7.0, 7.0]
    assert running.priority.tolist() == [3, 6, 2]
    assert running.within_quota.tolist() == [True, False, True]
    assert running.leaving.tolist() == [False, True, False]
    assert running.demand.of_row(0) == []
    assert running.demand.of_row(1) == [(2, 4)]
    assert running.demand.of_row(2) == [(1, 4), (3, 250)]


def test_an_empty_queue_is_a_view() -> None:
    assert len(ScanWorld(()).view().pending) == 0
    assert ScanWorld(()).view().buckets == ("any", "cpus")


def test_nothing_in_a_view_can_be_written() -> None:
    view = view_of(Queued("w1", "ash", 1.0, {"A100": 1}))
    for array in (view.pending.submitted_s, view.tenants.quota, view.pending.demand.amount):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


def test_the_callers_arrays_stay_writable() -> None:
    submitted_s = np.array([1.0])
    rows = replace(pending_rows((Queued("w1", "ash", 0.0, {}),)), submitted_s=submitted_s)
    build_scan_view((ASH,), {}, running_rows(()), rows, ScanSettings())
    submitted_s[0] = 2.0


def test_cpus_are_rounded_as_everywhere() -> None:
    cpus = [0.0, 0.1, 0.3, 1.0, 1.0001, 2.25, 63.9999, 1e6 / 3]
    assert millicpus_of(np.array(cpus)).tolist() == [request_millicpus(each) for each in cpus]


_ROWS = pending_rows((Queued("w1", "ash", 1.0, {"A100": 1}), Queued("w2", "ash", 2.0, {"A100": 1})))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (replace(_ROWS, tenants=[TenantId("ash"), TenantId("oak")]), "workload w2 belongs to the unknown tenant oak"),
        (replace(_ROWS, gpus=[1, -1]), "workload w2 asks for -1"),
        (replace(_ROWS, gpus=[1, 2**50]), "workload w2 asks for"),
        (replace(_ROWS, cpus=[0.0, -1.0]), "workload w2 asks for -1000"),
        (replace(_ROWS, cpus=[0.0, float("nan")]), "reasonable number"),
        (replace(_ROWS, cpus=[0.0, 1e300]), "reasonable number"),
        (replace(_ROWS, submitted_s=[1.0, float("inf")]), "submit times must be finite"),
        (replace(_ROWS, submitted_s=[1.0]), "submitted_s has 1 elements for 2"),
        (replace(_ROWS, tenants=[TenantId("ash")]), "tenants has 1 elements for 2"),
        (replace(_ROWS, stored_credit=[1.0, 2.0, 3.0]), "stored_credit has 3 elements for 2"),
        (replace(_ROWS, more_gpus=[None]), "more_gpus has 1 elements for 2"),
        (replace(_ROWS, attained_gpu_s=[0.0, -1.0]), "attained service must be finite and not negative"),
        (replace(_ROWS, workloads=[WorkloadId("w1")] * 2, submitted_s=[1.0, 1.0]), "each named once"),
    ],
)
def test_rows_that_make_no_sense_are_refused(rows: PendingRows, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_scan_view((ASH,), {}, running_rows(()), rows, ScanSettings())


def test_tenants_that_make_no_sense_are_refused() -> None:
    for bad, message in (
        (tenant("oak", priority=7), "priorities must be from 0 to 6"),
        (tenant("oak", weight=0.0), "more than 0"),
        (tenant("oak", any=-1), "quotas must be from 0"),
        (Tenant(TenantId("oak"), 1, Quota.of({GpuModel("cpus"): 1})), "no GPU model may be called 'cpus'"),
    ):
        with pytest.raises(ValueError, match=message):
            ScanWorld((bad,)).view()
    with pytest.raises(ValueError, match="each named once"):
        ScanWorld((ASH, ASH)).view()
