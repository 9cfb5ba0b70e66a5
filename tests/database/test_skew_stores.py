"""What is known of models and iterations, and the limit that is learnt from it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from psycopg.errors import UndefinedTable

from cluster_manager.skew.packlimit import DEFAULT_PACKLIMIT, PackLimit
from cluster_manager.skew.packlimit_history import PacklimitHistory
from domain.clock import ManualClock
from domain.identifiers import GpuModel, JobName, TenantId, WorkloadId
from domain.model_profile import KnownSkew, ModelProfile, SkewSource
from domain.workload import WorkloadSpecification
from formats.scheduler_file import PlacementSection
from services.configuration import Configuration
from services.database import fleet_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.packlimit_store import (
    IterationTime,
    add_iteration_times,
    load_changed_times,
    load_packlimit,
    store_packlimit,
)
from services.database.profile_store import NamedWorkload, ReportedProfile, known_skews, record_profiles, unknown_at
from services.database.snapshot_reader import load_snapshot
from services.database.workload_store import NewWorkload
from services.global_scheduler.packlimit_learning import PacklimitLearning
from services.global_scheduler.workload_look import WorkloadLook
from services.regional_scheduler.specifications import SpecificationCache
from services.wire.workloads import specification_to_proto
from tests.database.small_world import A100, ADS, FLEET, VISION, specification, submission, submit

W1, W2, W3 = (WorkloadId(f"w{number:06d}") for number in (1, 2, 3))
TRAIN = JobName("train")
CLOCK = ManualClock(10.0)


def in_one_transaction(database_url: str, story: Callable[[AnyConnection], Awaitable[None]]) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database, database.transaction() as connection:
            await story(connection)

    asyncio.run(scenario())


def profile(workload: WorkloadId, largest_mib: float, *, tenant: TenantId = ADS, name: str = "vgg") -> ReportedProfile:
    return ReportedProfile(workload, tenant, name, TRAIN, largest_mib, 100.0)


def time_of(
    name: str, *, spread: bool, mean_s: float, skew: float = 0.3, tasks: int = 2, model: GpuModel = A100
) -> IterationTime:
    return IterationTime(ADS, name, TRAIN, tasks, 1, model, spread, skew, mean_s)


def test_a_report_holds_for_the_workload_and_for_others_of_its_name(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1), submission(2), submission(3)])
        asked = [NamedWorkload(W1, ADS, "vgg"), NamedWorkload(W2, ADS, "vgg"), NamedWorkload(W3, VISION, "vgg")]
        assert await known_skews(connection, asked) == {}
        await record_profiles(connection, [profile(W1, 70.0)], 10.0)
        assert await known_skews(connection, asked) == {
            W1: {TRAIN: KnownSkew(0.7, SkewSource.REPORTED)},
            W2: {TRAIN: KnownSkew(0.7, SkewSource.OF_ITS_NAME)},
        }
        # The newest report of the name counts for others; each workload keeps its own.
        await record_profiles(connection, [profile(W2, 20.0), profile(W3, 30.0, tenant=VISION)], 20.0)
        known = await known_skews(connection, [*asked, NamedWorkload(WorkloadId("w9"), ADS, "vgg")])
        assert {workload: found[TRAIN].skew for workload, found in known.items()} == {
            W1: 0.7,
            W2: 0.2,
            W3: 0.3,
            "w9": 0.2,
        }
        await record_profiles(connection, [profile(W1, 100.0)], 30.0)
        assert (await known_skews(connection, asked[:1]))[W1][TRAIN] == KnownSkew(1.0, SkewSource.REPORTED)

    in_one_transaction(database_url, story)


def test_a_workload_is_on_trial_that_was_dispatched_before_anything_was_known(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [submission(1), submission(2), submission(3)])
        one, two, three = NamedWorkload(W1, ADS, "vgg"), NamedWorkload(W2, ADS, "vgg"), NamedWorkload(W3, ADS, "other")
        await record_profiles(connection, [profile(W1, 70.0)], 10.0)
        # The same again, as after a restart: it is known since the first time.
        await record_profiles(connection, [profile(W1, 70.0)], 20.0)
        asked = [(one, 9.0), (two, 11.0), (three, 30.0)]
        assert await unknown_at(connection, asked) == {W1, W3}
        assert await unknown_at(connection, [(one, 11.0), (two, 9.0)]) == {W2}
        assert await unknown_at(connection, []) == frozenset()
        # What it says now it has not said before.
        await record_profiles(connection, [profile(W1, 80.0)], 40.0)
        assert await unknown_at(connection, [(one, 30.0), (one, 40.0)]) == {W1}

    in_one_transaction(database_url, story)


def test_the_limit_is_learnt_from_jobs_that_have_run_both_ways(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        assert await load_packlimit(connection) == PackLimit(DEFAULT_PACKLIMIT)
        history = PacklimitHistory()

        async def learn(after: int = 0) -> PackLimit | None:
            changed = await load_changed_times(connection, after)
            return history.fit() if history.take(changed.sums) else None

        assert await learn() is None
        await add_iteration_times(connection, [time_of("a", spread=True, mean_s=2.0)])
        # One way alone says nothing; nor does another size, or another model of GPU.
        await add_iteration_times(connection, [time_of("a", spread=False, mean_s=1.0, tasks=4)])
        await add_iteration_times(connection, [time_of("a", spread=False, mean_s=1.0, model=GpuModel("V100"))])
        assert await learn() == PackLimit(DEFAULT_PACKLIMIT)
        # Twice, so that the means are 1.5 and 1.0.
        await add_iteration_times(
            connection, [time_of("a", spread=True, mean_s=1.0), time_of("a", spread=False, mean_s=1.0)]
        )
        learnt = await learn()
        assert learnt is not None
        assert learnt.limit == pytest.approx((0.1461 + 0.3) / 2)
        assert (learnt.learnt_from, learnt.misplaced) == (1, 0)
        await store_packlimit(connection, learnt, 3.0)
        assert await load_packlimit(connection) == learnt
        assert await learn() is None, "the same sums again"

    in_one_transaction(database_url, story)


def test_never_misses_what_a_transaction_added_that_ended_later(database_url: str) -> None:
    """What was begun before a look and committed after it is seen by the next look."""

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as slow:
                await add_iteration_times(slow, [time_of("slow", spread=True, mean_s=2.0)])
                async with database.transaction() as quick:
                    await add_iteration_times(quick, [time_of("quick", spread=True, mean_s=2.0)])
                async with database.transaction() as reader:
                    first = await load_changed_times(reader, 0)
                assert [ran.name for ran, _ in first.sums] == ["quick"]
            async with database.transaction() as reader:
                second = await load_changed_times(reader, first.next_after)
            assert "slow" in [ran.name for ran, _ in second.sums]
            async with database.transaction() as reader:
                assert (await load_changed_times(reader, second.next_after)).sums == ()

    asyncio.run(scenario())


def test_the_limit_is_kept_up_to_date_only_where_it_is_learnt(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                both = [time_of("a", spread=True, mean_s=2.0), time_of("a", spread=False, mean_s=1.0)]
                await add_iteration_times(connection, both)
            fixed = PacklimitLearning(database, CLOCK, Configuration(placement=PlacementSection(packlimit=0.5)))
            waiting = asyncio.ensure_future(fixed.run())
            await asyncio.sleep(0)
            waiting.cancel()
            async with database.transaction() as connection:
                assert (await load_packlimit(connection)).learnt_from == 0
            learning = PacklimitLearning(database, CLOCK, Configuration())
            await learning.learn()
            async with database.transaction() as connection:
                assert (await load_packlimit(connection)).learnt_from == 1

    asyncio.run(scenario())


def test_what_could_not_be_stored_is_learnt_the_next_time(database_url: str) -> None:
    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                both = [time_of("a", spread=True, mean_s=2.0), time_of("a", spread=False, mean_s=1.0)]
                await add_iteration_times(connection, both)
                await connection.execute("ALTER TABLE packlimits RENAME TO gone")
            learning = PacklimitLearning(database, CLOCK, Configuration())
            with pytest.raises(UndefinedTable):
                await learning.learn()
            async with database.transaction() as connection:
                await connection.execute("ALTER TABLE gone RENAME TO packlimits")
            await learning.learn()
            async with database.transaction() as connection:
                assert (await load_packlimit(connection)).learnt_from == 1

    asyncio.run(scenario())


def test_a_region_is_handed_workloads_as_they_are_to_be_placed_now(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        gang = specification(name="vgg", tasks=2)
        declaring = replace(gang, name="other", jobs=(replace(gang.jobs[0], profile=ModelProfile(0.3)),))
        await submit(connection, [stored(1, gang), stored(2, declaring), stored(3, specification(name="vgg"))])
        cache, fixed = SpecificationCache(), SpecificationCache(PlacementSection(packlimit=0.8))

        async def consolidated(specifications: SpecificationCache) -> list[bool]:
            workloads = await specifications.workloads(connection, [W1, W2, W3])
            return [workloads[name].specification.jobs[0].consolidate for name in (W1, W2, W3)]

        assert await consolidated(cache) == [False, False, False]
        await record_profiles(connection, [profile(W1, 70.0)], 10.0)
        # The third has one task: there is nothing to bring together.
        assert await consolidated(cache) == [True, False, False]
        assert await consolidated(fixed) == [False, False, False]
        await add_iteration_times(
            connection, [time_of("a", spread=True, mean_s=2.0, skew=0.25), time_of("a", spread=False, mean_s=1.0)]
        )
        history = PacklimitHistory()
        history.take((await load_changed_times(connection, 0)).sums)
        await store_packlimit(connection, history.fit(), 11.0)
        assert await consolidated(cache) == [True, True, False]

    in_one_transaction(database_url, story)


def test_whoever_looks_at_a_workload_learns_whether_it_is_consolidated_and_why(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await submit(connection, [stored(1, specification(name="vgg", tasks=2)), stored(2, specification())])

        async def told(workload: WorkloadId, packlimit: float | None = None) -> list[tuple[bool, str, str]]:
            look = WorkloadLook(lambda _: "", PlacementSection(packlimit=packlimit))
            said = look.message((await look.load(connection, [workload]))[workload]).consolidations
            return [(one.consolidate, one.reason, one.sentence) for one in said]

        unknown = "not consolidated: the skew of its model is not known yet"
        assert await told(W1) == [(False, "unknown_skew", unknown)]
        await record_profiles(connection, [profile(W1, 70.0)], 10.0)
        above = "consolidated: its skew 0.7 (reported by its own attempts) is above PACKLIMIT 0.378"
        assert await told(W1) == [(True, "above_packlimit", above)]
        assert [one[:2] for one in await told(W1, 0.9)] == [(False, "not_above_packlimit")]
        assert await told(W2) == [], "of one task"

    in_one_transaction(database_url, story)


def test_in_a_snapshot_workloads_declare_what_was_reported_of_them(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        declaring = specification(name="vgg", tasks=2)
        declaring = replace(declaring, jobs=(replace(declaring.jobs[0], profile=ModelProfile(0.2)),))
        wanted = [specification(name="vgg", tasks=2), specification(name="other", tasks=2), declaring]
        await submit(connection, [stored(number, one) for number, one in enumerate(wanted, 1)])

        async def skews() -> list[ModelProfile | None]:
            snapshot = await load_snapshot(connection, 2000.0)
            return [entry.workload.specification.jobs[0].profile for entry in snapshot.queue]

        assert await skews() == [None, None, ModelProfile(0.2)]
        await record_profiles(connection, [profile(W1, 70.0)], 10.0)
        assert await skews() == [ModelProfile(0.7), None, ModelProfile(0.2)]

    in_one_transaction(database_url, story)


def test_a_snapshot_has_what_was_measured_and_what_completed_workloads_received(database_url: str) -> None:
    async def story(connection: AnyConnection) -> None:
        await fleet_store.apply_fleet(connection, FLEET)
        await add_iteration_times(
            connection, [time_of("b", spread=True, mean_s=2.0), time_of("a", spread=False, mean_s=1.0)]
        )
        await connection.execute("INSERT INTO service_samples (tenant, gpu_s) VALUES ('vision', 70.0), ('ads', 5.0)")
        snapshot = await load_snapshot(connection, 2000.0)
        assert snapshot.completed_service == ((VISION, 70.0), (ADS, 5.0)), "in the order in which they were counted"
        assert [(ran.name, ran.spread, sums) for ran, sums in snapshot.iteration_times] == [
            ("a", False, (0.3, 1, 1.0)),
            ("b", True, (0.3, 1, 2.0)),
        ]

    in_one_transaction(database_url, story)


def stored(number: int, wanted: WorkloadSpecification) -> NewWorkload:
    return replace(submission(number, wanted), serialized=specification_to_proto(wanted).SerializeToString())
