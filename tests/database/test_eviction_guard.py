"""PostgreSQL's guard of evictions against the rule of `domain.eviction`, on random attempts."""

import asyncio
import random
from dataclasses import dataclass, replace

import pytest

from cluster_manager.attempt_run.events import Eviction
from domain.events import EvictionCause
from domain.eviction import EvictionRule, Evictor, Victim, evictable_from_s, is_spared, may_evict
from domain.identifiers import AttemptNumber, WorkloadId
from domain.placement import AttemptKey
from domain.rank import Standing
from services.database import attempt_store
from services.database.connection import AnyConnection
from services.database.engine import Database
from services.database.eviction_guard import preemptions
from tests.database.small_world import dispatch, new_attempt, submission, submit

NOW_S = 100_000.0
CASES = 300
GUARANTEED, OPPORTUNISTIC = (AttemptKey(WorkloadId(name), AttemptNumber(1)) for name in ("w999998", "w999999"))


@dataclass(frozen=True)
class GuardedEviction:
    """A live attempt, its past, and the newcomer that wants its place."""

    key: AttemptKey
    standing: Standing
    dispatched_s: float
    started_s: float | None
    preempted_s: tuple[float, ...]
    guaranteed: bool
    newcomer: Evictor

    @property
    def eviction(self) -> Eviction:
        by = GUARANTEED if self.newcomer.guaranteed else OPPORTUNISTIC
        return Eviction(EvictionCause.PREEMPTED, by, self.newcomer.standing)


def cases() -> list[GuardedEviction]:
    rng = random.Random(7)
    made = []
    for number in range(1, CASES + 1):
        ages = [rng.choice((0.0, 1.0, 1800.0, 3599.0, 3600.0, 3601.0, 9000.0)) for _ in range(rng.randrange(4))]
        dispatched_s = NOW_S - rng.choice((0.0, 599.0, 600.0, 601.0, 5000.0))
        started_s = rng.choice((None, dispatched_s, dispatched_s + 1.0, max(dispatched_s, NOW_S - 600.0)))
        key = AttemptKey(WorkloadId(f"w{number:06}"), AttemptNumber(len(ages) + 1))
        victim, newcomer = (Standing(rng.randrange(3), rng.randrange(2)) for _ in range(2))
        past_s = tuple(sorted(NOW_S - age for age in ages))
        by = Evictor(newcomer, rng.random() < 0.5)
        made.append(GuardedEviction(key, victim, dispatched_s, started_s, past_s, rng.random() < 0.5, by))
    return made


async def write(connection: AnyConnection, made: list[GuardedEviction]) -> None:
    await submit(connection, [submission(number) for number in range(1, len(made) + 1)])
    for case in made:
        for number, preempted_s in enumerate(case.preempted_s, 1):
            past = new_attempt(case.key.workload, number, dispatched_s=preempted_s - 100.0)
            await dispatch(connection, past)
            await connection.execute(
                "UPDATE attempts SET state = 'ENDED', ended_s = %s, preempted_s = %s WHERE workload = %s AND attempt = %s",
                (preempted_s + 5.0, preempted_s, case.key.workload, number),
            )
            await connection.execute("UPDATE workloads SET state = 'PENDING' WHERE workload = %s", (case.key.workload,))
        attempt = new_attempt(case.key.workload, int(case.key.attempt), dispatched_s=case.dispatched_s)
        # Since then it was re-classified: what counts is what it was when it was dispatched.
        within_quota = not case.guaranteed
        await dispatch(
            connection,
            replace(attempt, standing=case.standing, guaranteed=case.guaranteed, within_quota=within_quota),
        )
        if case.started_s is not None:
            await attempt_store.record_started(connection, [(case.key, case.started_s)])


@pytest.mark.parametrize(
    "rule",
    [
        EvictionRule(),
        EvictionRule(600.0),
        EvictionRule(0.0, 2),
        EvictionRule(600.0, 1),
        EvictionRule(0.0, 0),
        EvictionRule(spares_guaranteed=True),
        EvictionRule(600.0, 1, spares_guaranteed=True),
    ],
    ids=str,
)
def test_never_another_answer_from_the_database_than_from_the_rule(database_url: str, rule: EvictionRule) -> None:
    async def scenario() -> None:
        made = cases()
        expected = {case.key for case in made if allows(rule, case)}
        async with Database(database_url) as database, database.transaction() as connection:
            await write(connection, made)
            known = await preemptions(connection, rule, [case.key.workload for case in made], NOW_S)
            evictions = [(case.key, case.eviction) for case in made]
            assert await attempt_store.begin_evictions(connection, evictions, NOW_S, rule, {GUARANTEED}) == expected
            assert len(expected) > 20 or rule.evictions_per_workload_and_hour == 0
            if rule.evictions_per_workload_and_hour is not None:
                for case in made:
                    recent = tuple(t for t in case.preempted_s if t + 3600.0 > NOW_S)
                    assert known.get(case.key.workload, ()) == recent

    asyncio.run(scenario())


def allows(rule: EvictionRule, case: GuardedEviction) -> bool:
    from_s = evictable_from_s(rule, case.dispatched_s, case.started_s, case.preempted_s)
    spared = is_spared(rule, guaranteed=case.guaranteed)
    return may_evict(case.newcomer, Victim(case.standing, spared, from_s), NOW_S)
