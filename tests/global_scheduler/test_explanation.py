from hypothesis import given

from global_scheduler.explanation import explain_entry
from global_scheduler.scan_pass import scan_pass
from tests.global_scheduler.scan_worlds import NOW_S, LiveRow, Queued, ScanWorld, tenant, worlds


def sentences(world: ScanWorld) -> list[str]:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    return [explain_entry(view, plan, entry) for entry in range(len(view.pending))]


def test_over_quota_says_what_is_used_by_whom_and_what_is_left() -> None:
    world = ScanWorld(
        (tenant("vision", H100=16), tenant("other", H100=64)),
        (
            Queued("w0", "other", 0.0, {"H100": 64}),
            Queued("w1", "vision", 1.0, {"H100": 2}),
            Queued("w2", "vision", 2.0, {"H100": 8}),
        ),
        (LiveRow("r1", "vision", 1.0, {"H100": 10}, True, priority=1),),
    )
    assert sentences(world)[1:] == [
        "w1 is within quota: with it tenant vision uses 12 of 16 H100 GPUs.",
        (
            "w2 is over-quota: it asks for 8 H100 GPUs, but of tenant vision's 16, 10 are used by running workloads and 2 "
            "by those ahead of it in the queue, which leaves 4."
        ),
    ]


def test_cpus_are_said_as_cpus_and_any_is_no_model() -> None:
    world = ScanWorld(
        (tenant("vision", cpus=2.0, any=16), tenant("speech", any=4)),
        (
            Queued("w1", "vision", 1.0, {"any": 4}, cpus=0.5),
            Queued("w2", "vision", 2.0, {}, cpus=1.75),
            Queued("w3", "speech", 3.0, {"T4": 1}, cpus=64.0),
            Queued("w4", "speech", 4.0, {}),
        ),
    )
    assert sentences(world) == [
        "w1 is within quota: with it tenant vision uses 4 of 16 GPUs and 0.5 of 2 CPUs.",
        (
            "w2 is over-quota: it asks for 1.75 CPUs, but of tenant vision's 2, 0 are used by running workloads and 0.5 "
            "by those ahead of it in the queue, which leaves 1.5."
        ),
        "w3 is within quota: with it tenant speech uses 1 of 4 GPUs and 64 of unlimited CPUs.",
        "w4 is within quota: it asks for nothing that is charged to a quota.",
    ]


@given(worlds())
def test_never_leaves_a_decision_unexplained(world: ScanWorld) -> None:
    view = world.view()
    plan = scan_pass(view, NOW_S)
    for entry, sentence in enumerate(sentences(world)):
        verdict = "within quota" if plan.within_quota[entry] else "over-quota"
        assert sentence.startswith(f"{view.pending.workloads[entry]} is {verdict}: ")
