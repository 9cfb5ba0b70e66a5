from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from domain.eviction import EvictionRule, VictimChoice
from domain.service_scope import DistributionScope
from domain.tenant import LOWEST_PRIORITY
from formats.problems import FormatError
from formats.scheduler_file import EstimatesSection, LevelsSection, PrioritySection, parse_scheduler_file
from global_scheduler.levels.attained_service import AttainedService
from global_scheduler.levels.remaining_service import RemainingService
from global_scheduler.levels.time_slice import TimeSlice
from global_scheduler.ordering.credit import CreditOrdering
from global_scheduler.ordering.fewest_gpus import FewestGpus
from global_scheduler.ordering.fifo import FifoOrdering
from global_scheduler.ordering.first_started import FirstStarted
from global_scheduler.ordering.gittins import GittinsOrdering
from global_scheduler.ordering.longest_waiting import LongestWaiting
from global_scheduler.ordering.shortest_remaining import ShortestRemaining
from global_scheduler.ordering.shortest_remaining_service import ShortestRemainingService
from global_scheduler.scan_settings import QueueRule, ScanSettings
from services.configuration import (
    AuctionConfiguration,
    Configuration,
    LeaseConfiguration,
    ScanConfiguration,
    load_configuration,
)
from services.queue_rules import why_not_live
from simulator.baselines.tiresias import BOUNDED, PROMOTE_KNOB, THRESHOLDS_GPU_S
from simulator.policies.registry import policies

EXAMPLE = Path(__file__).parents[2] / "examples" / "scheduler.yaml"


def rule_of(section: PrioritySection, *, estimates: bool = False) -> QueueRule:
    """The rule of priority 3, where no other priority says anything."""
    configuration = Configuration(priorities={3: section}, estimates=EstimatesSection() if estimates else None)
    rules = configuration.scan_settings().rules
    assert len(rules) == LOWEST_PRIORITY + 1
    assert {rule for number, rule in enumerate(rules) if number != 3} == {QueueRule()}
    return rules[3]


def test_the_default_is_credit_without_levels() -> None:
    assert Configuration().scan_settings() == ScanSettings()
    assert ScanSettings().rules[0] == QueueRule(CreditOrdering(), None)


def test_the_example_says_the_defaults_and_names_policies() -> None:
    configuration = load_configuration(EXAMPLE)
    assert configuration.scan == ScanConfiguration()
    assert (configuration.auction, configuration.lease) == (AuctionConfiguration(), LeaseConfiguration())
    rules = configuration.scan_settings().rules
    assert rules[2] == QueueRule(FifoOrdering())
    assert rules[3] == QueueRule(FifoOrdering(), AttainedService((3200.0, 36_000.0)))
    assert rules[4] == QueueRule(ShortestRemainingService(), RemainingService())


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("credit", QueueRule()),
        ("mast", QueueRule()),
        ("fifo", QueueRule(FifoOrdering())),
        ("sf", QueueRule(FewestGpus())),
        ("las", QueueRule(FifoOrdering(), AttainedService())),
        ("tiresias_las", QueueRule(FirstStarted(), AttainedService(THRESHOLDS_GPU_S, PROMOTE_KNOB))),
        (
            "tiresias_gittins",
            QueueRule(GittinsOrdering(THRESHOLDS_GPU_S), AttainedService(THRESHOLDS_GPU_S, PROMOTE_KNOB)),
        ),
        ("gandiva", QueueRule(LongestWaiting(), TimeSlice())),
    ],
)
def test_a_policy_gives_its_ordering_and_its_levels(name: str, rule: QueueRule) -> None:
    assert rule_of(PrioritySection(ordering=name)) == rule


def test_levels_may_be_others_than_those_of_the_policy() -> None:
    thresholds = LevelsSection(thresholds_gpu_s=[10.0, 20.0])
    assert rule_of(PrioritySection(ordering="las", levels=thresholds)).levels == AttainedService((10.0, 20.0))
    assert rule_of(PrioritySection(ordering="las", levels=LevelsSection(rule="none"))).levels is None
    sliced = PrioritySection(levels=LevelsSection(rule="time_slice", slice_s=600.0))
    assert rule_of(sliced) == QueueRule(CreditOrdering(), TimeSlice(600.0))


def test_the_gittins_index_goes_by_the_thresholds_of_the_levels() -> None:
    levels = LevelsSection(thresholds_gpu_s=[10.0, 20.0], promote_knob=2.0, starve_limit_s=60.0)
    rule = rule_of(PrioritySection(ordering="tiresias_gittins", levels=levels))
    assert rule == QueueRule(GittinsOrdering((10.0, 20.0)), AttainedService((10.0, 20.0), 2.0, 60.0))


def test_promotion_is_switched_off_by_null() -> None:
    text = "priorities: {3: {ordering: tiresias_las, levels: {promote_knob: null, starve_limit_s: 600}}}"
    configuration = parse_scheduler_file(text, Configuration)
    levels = configuration.scan_settings().rules[3].levels
    assert levels == AttainedService(THRESHOLDS_GPU_S, None, 600.0)


def test_evictions_are_bounded_as_the_policies_want_it_unless_the_file_says_otherwise() -> None:
    named = "priorities: {3: {ordering: tiresias_las}, 4: {ordering: fifo}}"
    assert parse_scheduler_file(named, Configuration).eviction_rule() == BOUNDED
    longer = parse_scheduler_file(f"{named}\neviction: {{minimum_run_time_s: 4000}}", Configuration).eviction_rule()
    assert longer == replace(BOUNDED, minimum_run_time_s=4000.0)
    paper = "eviction: {minimum_run_time_s: 0, evictions_per_workload_and_hour: null}"
    assert parse_scheduler_file(f"{named}\n{paper}", Configuration).eviction_rule() == EvictionRule()
    published = "eviction: {victims: published, restart_cost_s: 5}"
    assert parse_scheduler_file(published, Configuration).eviction_rule() == EvictionRule(restart_cost_s=5.0)
    assert parse_scheduler_file("priorities: {3: {ordering: las}}", Configuration).eviction_rule() == EvictionRule()
    for text in ("{}", "priorities: {3: {ordering: mast}, 4: {ordering: fifo}}"):
        sparing = EvictionRule(victims=VictimChoice.LEAST_WORK_DESTROYED)
        assert parse_scheduler_file(text, Configuration).eviction_rule() == sparing


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{victims: longest}", "eviction.victims"),
        ("{restart_cost_s: 0}", "eviction.restart_cost_s"),
        ("{restart_cost_s: -1}", "eviction.restart_cost_s"),
    ],
)
def test_what_is_no_choice_of_victims_is_refused(section: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_scheduler_file(f"eviction: {section}", Configuration)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{3: {ordering: tiresias_las, levels: {promote_knob: 0}}}",
            r"priorities\[3\]\.levels\.promote_knob: must be greater than 0",
        ),
        (
            "{3: {ordering: tiresias_las, levels: {promote_knob: -8}}}",
            r"priorities\[3\]\.levels\.promote_knob: must be greater than 0",
        ),
        (
            "{3: {ordering: tiresias_las, levels: {starve_limit_s: -1}}}",
            r"priorities\[3\]\.levels\.starve_limit_s: must be at least 0",
        ),
        (
            "{3: {ordering: tiresias_las, levels: {thresholds_gpu_s: [0]}}}",
            r"levels\.thresholds_gpu_s\[0\]: must be greater than 0",
        ),
        (
            "{3: {ordering: tiresias_las, levels: {thresholds_gpu_s: [9, -1]}}}",
            r"levels\.thresholds_gpu_s\[1\]: must be greater than 0",
        ),
        (
            "{3: {ordering: tiresias_las, levels: {thresholds_gpu_s: [9, 9]}}}",
            r"levels\.thresholds_gpu_s: .*that ascend",
        ),
        ("{3: {ordering: tiresias_las, levels: {thresholds_gpu_s: []}}}", r"levels\.thresholds_gpu_s: .*one or more"),
        ("{7: {ordering: tiresias_las}}", r"priorities\[7\] \(a key\): must be at most 6"),
        ("{3: {ordering: tiresias}}", r"there is no policy tiresias; did you mean"),
    ],
)
def test_levels_that_are_none_are_refused_by_field(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse_scheduler_file(f"priorities: {text}", Configuration).scan_settings()


def test_samples_of_service_are_read_from_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "samples.csv").write_text("period_s,gpu_time_s\n1000,120\n1000,3600.5\n")
    file = tmp_path / "mine.yaml"
    file.write_text("distribution: {scope: tenant, samples_file: samples.csv}")
    settings = load_configuration(file).scan_settings()
    assert (settings.distribution, settings.samples_gpu_s) == (DistributionScope.TENANT, (120.0, 3600.5))
    file.write_text("distribution: tenant")
    assert load_configuration(file).scan_settings().distribution is DistributionScope.TENANT
    file.write_text("distribution: both")
    with pytest.raises(FormatError, match=r"distribution\.scope: "):
        load_configuration(file)
    file.write_text("distribution: {samples_file: nowhere.csv}")
    with pytest.raises(FormatError, match=r"nowhere\.csv: cannot be read"):
        load_configuration(file)


def test_what_needs_an_oracle_goes_by_estimates_when_configured() -> None:
    assert rule_of(PrioritySection(ordering="sjf"), estimates=True) == QueueRule(ShortestRemaining())
    with pytest.raises(FormatError) as refused:
        rule_of(PrioritySection(ordering="sjf"))
    assert str(refused.value) == (
        "scheduler.yaml: priorities[3].ordering: shortest_remaining needs remaining_s, how long workloads will run, which"
        " only an oracle knows; set 'estimates: true' to estimate it, or use las, which goes by the service received"
    )
    with pytest.raises(FormatError, match=r"priorities\[3\].levels: remaining_service needs remaining_s"):
        rule_of(PrioritySection(ordering="credit", levels=LevelsSection(rule="remaining_service")))


@pytest.mark.parametrize(
    ("section", "received"),
    [
        (PrioritySection(ordering="lass"), r"\.ordering: there is no policy lass; did you mean las"),
        (PrioritySection(ordering="easy_backfill"), "rule of its own for which of the queue start.*in order"),
        (PrioritySection(ordering="own_region"), "own_region can only be simulated: it binds workloads to a region"),
        (PrioritySection(ordering="best_effort"), "cuts workloads into tasks"),
        (PrioritySection(ordering="srtf"), "expected_end moves all that wait with every second.*remaining_service"),
        (PrioritySection(levels=LevelsSection(rule="steps")), r"\.levels\.rule: there is no level rule steps; known"),
        (PrioritySection(levels=LevelsSection(slice_s=1.0)), r"\.levels\.slice_s: is a parameter of levels, but there"),
        (
            PrioritySection(ordering="las", levels=LevelsSection(slice_s=1.0)),
            r"\.levels\.slice_s: attained_service has no such parameter; known: promote_knob, starve_limit_s",
        ),
        (
            PrioritySection(ordering="las", levels=LevelsSection(thresholds_gpu_s=[5.0, 1.0])),
            r"\.levels\.thresholds_gpu_s: thresholds_gpu_s must be .* that ascend",
        ),
        (
            PrioritySection(
                ordering="las", levels=LevelsSection(thresholds_gpu_s=[float(n) for n in range(1, 32_769)])
            ),
            r"\.levels\.thresholds_gpu_s: thresholds_gpu_s are 32768; at most 16383 are possible",
        ),
        (
            PrioritySection(levels=LevelsSection(rule="remaining_service", bucket_factor=1.000_001)),
            r"\.levels\.bucket_factor: bucket_factor 1.000001 makes more than 16383 levels; choose a greater one",
        ),
    ],
)
def test_what_a_service_cannot_follow_is_refused_by_field_with_a_remedy(
    section: PrioritySection, received: str
) -> None:
    with pytest.raises(FormatError, match=received):
        rule_of(section, estimates=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "eviction: {victims: least}",
            r"eviction\.victims: must be 'published' or 'least_work_destroyed', not 'least'$",
        ),
        ("retention: {archive: ''}", r"retention\.archive: must be text that is not empty, not ''$"),
        (
            "lease: {lost_grace_real_s: 1}",
            r"yaml: lease: lost_grace_real_s is 1; it must be at least duration_real_s \(3\), or tasks could .* for lost$",
        ),
    ],
)
def test_what_is_wrong_is_said_in_the_words_of_this_project(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        parse_scheduler_file(text, Configuration)


def test_every_problem_is_reported_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("priorities: {0: {ordering: nope}, 6: {ordering: ideal}}")
    with pytest.raises(FormatError) as refused:
        load_configuration(file)
    assert [problem.field for problem in refused.value.problems] == ["priorities[0].ordering", "priorities[6].ordering"]
    assert str(file) in str(refused.value)


def test_every_policy_is_either_followed_or_refused_with_a_reason() -> None:
    for name, policy in policies().items():
        why = why_not_live(policy)
        if why is None:
            assert rule_of(PrioritySection(ordering=name), estimates=True).ordering == policy.ordering
        else:
            with pytest.raises(FormatError, match=r"priorities\[3\]\.ordering: "):
                rule_of(PrioritySection(ordering=name), estimates=True)


def test_a_configuration_reaches_the_tiers_as_it_is() -> None:
    configuration = load_configuration(EXAMPLE)
    arrived = pickle.loads(pickle.dumps(configuration))  # noqa: S301  # our own bytes, as between processes
    assert arrived == configuration
    assert arrived.eviction_rule() == configuration.eviction_rule()
