"""The world before anything has happened, and the parts that work on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from cluster_manager.skew.one_machine import one_machine_of
from data_placement.catalog import Catalog
from domain.clock import ManualClock
from domain.fleet import DEFAULT_MECHANISM, Fleet
from domain.scaling import LinearScaling
from domain.sensitivity import SensitivityProfile
from domain.snapshot import Snapshot
from domain.tenant import Tenant
from formats.trace_workload import greatest_gpus_per_machine
from global_scheduler.credit import CreditSettings
from global_scheduler.scan_settings import QueueRule
from global_scheduler.service_history import ServiceHistory
from simulator.engine.asked_capacity import AskedCapacity
from simulator.engine.attempts import Attempts
from simulator.engine.auction_rounds import are_held_in_rounds, refuse_several_ways
from simulator.engine.event_log import EventSink, SimulatedEvents
from simulator.engine.event_queue import EventQueue
from simulator.engine.intake import Intake
from simulator.engine.measured_attempts import MeasuredAttempts
from simulator.engine.one_workload import OneWorkload
from simulator.engine.packlimit import SimulatedPacklimit
from simulator.engine.queue_pass import QueuePassFacts, SimulatedQueuePass
from simulator.engine.queues import RankedQueue, ScannedQueue
from simulator.engine.recorder import Recorder
from simulator.engine.regions import SimulatedRegions
from simulator.engine.scanning import Scanner
from simulator.engine.settings import SimulationSettings
from simulator.engine.tenant_use import TenantUse
from simulator.engine.trials import Trials
from simulator.engine.tuned_starts import add_reverts, tuned_asks, tuned_dispatch
from simulator.engine.ways_to_run import LoanedGpus
from simulator.engine.work_speed import NO_MODELS, WorkSpeed
from simulator.engine.world import World
from simulator.inputs.loans import LoanSchedule
from simulator.policies.policy import Policy


def make_world(
    fleet: Fleet,
    catalog: Catalog,
    tenants: Sequence[Tenant],
    policy: Policy,
    settings: SimulationSettings,
    seed: int,
    sink: EventSink | None,
    start_s: float,
    samples_gpu_s: Sequence[float] = (),
    snapshot: Snapshot | None = None,
    profiles: Mapping[str, SensitivityProfile] = NO_MODELS,
) -> World:
    """An empty world at `start_s`; `tenants` by name. Its queue is for a policy that makes no scan passes.

    `samples_gpu_s` are the service of workloads that completed before the run, besides those of the snapshot; `profiles` those of the models that they name.
    """
    service = ServiceHistory(settings.distribution, samples_gpu_s)
    for sample in snapshot.completed_service if snapshot is not None else ():
        service.completed(*sample)
    one = OneWorkload(policy.ordering, policy.levels, service, scans=policy.scans)
    rule = settings.eviction.rule(policy.eviction)
    world = World(
        fleet=fleet,
        catalog=catalog,
        tenants=tenants,
        policy=policy,
        settings=settings,
        rng=np.random.default_rng(seed),
        clock=ManualClock(-math.inf),
        events=EventQueue(),
        one=one,
        queue=RankedQueue(one),
        regions=SimulatedRegions(
            fleet,
            catalog,
            remembers=settings.negative_cache,
            beyond_walks=settings.negative_cache_outlives_scans,
            rule=rule,
            reservations=settings.reservations.rule(),
        ),
        recorder=Recorder(fleet),
        log=SimulatedEvents(sink, [region.region for region in fleet.regions]) if sink is not None else None,
        speed=WorkSpeed(fleet, settings.placement, profiles, LinearScaling(settings.elastic.loss)),
        tenant_use=TenantUse(len(tenants), settings.usage_window_s, start_s),
        service=service,
        packlimit=SimulatedPacklimit(settings.placement, snapshot.iteration_times if snapshot is not None else ()),
        completed_service=list(snapshot.completed_service) if snapshot is not None else [],
        eviction_rule=rule,
        tenant_gpus=[0] * len(tenants),
    )
    add_reverts(world)
    world.clock.advance_to(start_s)
    return world


def make_scanner(world: World, names: Sequence[str]) -> Scanner | None:
    """What makes scan passes, for policies that want them: then the world's queue is ranked by it.

    `names` are the ids of all workloads of the run, by index.
    """
    policy = world.policy
    if not policy.scans:
        return None
    scanner = Scanner(
        world.tenants,
        names,
        QueueRule(policy.ordering, policy.levels),
        CreditSettings(usage_window_s=world.settings.usage_window_s, fair_share=world.settings.fair_share),
        world.tenant_use,
        world.service,
        shares_opportunistic=any(c.cells.virtual_clusters for region in world.fleet.regions for c in region.clusters),
    )
    world.columns = scanner.columns
    packing_only = all(c.mechanism == DEFAULT_MECHANISM for region in world.fleet.regions for c in region.clusters)
    guaranteed_apart = world.eviction_rule.spares_guaranteed or not packing_only
    world.queue = ScannedQueue(scanner.columns, world.workloads, guaranteed_apart=guaranteed_apart)
    return scanner


def make_intake(world: World, loans: LoanSchedule | None = None, estimates: Sequence[float] = ()) -> Intake:
    """What makes workloads of rows, as the policy wants them cut and grouped; `estimates` are by index (none: all are right)."""
    policy, settings = world.policy, world.settings
    loaned = _loaned_gpus(world, loans)
    if loaned is not None and are_held_in_rounds(world) and any(m != loaned.model for m in world.fleet.gpu_models()):
        raise refuse_several_ways()
    return Intake(
        world.tenants,
        world.regions,
        policy.placement,
        greatest_gpus_per_machine(world.fleet),
        settings.costs,
        settings.placement,
        world.packlimit,
        waits_for=one_machine_of(world.fleet.regions) if settings.placement.wait_for_consolidation else None,
        tenants_apart=policy.tenants_apart,
        trace_regions_bind=settings.trace_regions_bind,
        charged=policy.scans,
        ask=tuned_asks(world),
        loaned=loaned,
        estimates=estimates,
        reserves=settings.reservations.enabled,
    )


def make_trials(world: World, intake: Intake, attempts: Attempts) -> Trials | None:
    """What shows the skews of rows after a while; None where they are known from the start. What measures for PACKLIMIT, and
    has workloads decided when they come to the queue, is added where it is needed."""
    trial_s, trials = world.settings.placement.trial_s, None
    if trial_s is not None:
        trials = Trials(world, attempts, intake.decide, trial_s)
        world.observers += (trials,)
    if trial_s is not None or world.packlimit.learns:
        world.observers += (MeasuredAttempts(world, world.packlimit, intake.decide),)
    return trials


def _loaned_gpus(world: World, loans: LoanSchedule | None) -> LoanedGpus | None:
    """Of what model the machines are that are lent at times; None when nothing is."""
    lenders = loans.clusters() if loans is not None else ()
    models = [
        machine.gpu_model
        for region in world.fleet.regions
        for cluster in region.clusters
        if cluster.cluster in lenders
        for machine in cluster.machines()
        if machine.gpus
    ]
    return LoanedGpus(models[0], world.settings.loaned) if models else None


def make_queue_pass(world: World, attempts: Attempts) -> SimulatedQueuePass:
    """What allocation policies see of the world's queue; what they start goes to `attempts`."""
    machines = [machine for region in world.fleet.regions for machine in region.machines()]
    return SimulatedQueuePass(
        world.queue,
        world.regions,
        world.one,
        tuned_dispatch(world, attempts.dispatch),
        lambda: list(world.live.values()),
        world.tenant_gpus,
        QueuePassFacts(
            [tenant.fair_share_weight for tenant in world.tenants],
            sum(machine.gpus for machine in machines),
            sum(machine.cpus for machine in machines),
            world.settings.costs,
            AskedCapacity(world.regions, machines),
        ),
    )
