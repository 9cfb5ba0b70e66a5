"""What ended workloads read counts once each, for the recurring workload that they are a run of."""

import asyncio
from dataclasses import replace
from functools import partial

from domain.identifiers import GpuModel, JobName, TableId, TenantId
from domain.job_fingerprint import job_fingerprint
from domain.resources import TaskResources
from domain.workload import Command, JobSpecification, TableInput, WorkloadSpecification
from domain.workload_fingerprint import workload_fingerprint
from services.data_placement.use_counting import reader_uses
from services.database import use_store
from services.database.engine import Database
from services.database.use_store import ReaderUse, RunUse

A100 = GpuModel("A100")
_TRAIN = JobSpecification(
    JobName("train"), 2, TaskResources(gpus=8, gpu_model=A100), Command(("train.py", "--seed", "1"))
)
_RUN = WorkloadSpecification("monday", TenantId("ads"), (_TRAIN,), (TableInput(TableId("clicks")),))


def test_a_run_of_another_day_is_the_same_workload_and_one_of_other_tables_is_not() -> None:
    again = replace(_TRAIN, entry_point=Command(("train.py", "--seed", "2")))
    assert job_fingerprint(again) == job_fingerprint(_TRAIN)
    first = workload_fingerprint(_RUN)
    assert first == workload_fingerprint(replace(_RUN, name="tuesday", jobs=(again,)))
    others = (
        replace(_RUN, tenant=TenantId("vision")),
        replace(_RUN, tables=(TableInput(TableId("views")),)),
        replace(_RUN, jobs=(replace(_TRAIN, tasks=3),)),
    )
    assert len({first, *map(workload_fingerprint, others)}) == 4
    assert workload_fingerprint(replace(_RUN, tables=())) is None


def test_cpus_beside_gpus_count_with_the_model_of_which_it_had_most() -> None:
    uses = [
        RunUse("w", "", 1, 0.0, 5.0),
        RunUse("w", "A100", 1, 16.0, 3.0),
        RunUse("w", "V100", 1, 4.0, 1.0),
    ]
    found = {use.gpu_model: (use.gpu_hours, use.cpu_hours, use.day) for use in reader_uses(_RUN, uses, 7)}
    assert found == {"A100": (16.0, 8.0, 7), "V100": (4.0, 1.0, 7)}
    (alone,) = reader_uses(_RUN, uses[:1], 7)
    assert (alone.gpu_model, alone.cpu_hours) == ("", 5.0)
    assert reader_uses(replace(_RUN, tables=()), uses, 7) == []


def test_what_was_counted_is_not_counted_again(database_url: str) -> None:
    use = ReaderUse("reader", "f", "A100", 1, 3, 2.0, 1.0, ("clicks", "unknown"))

    async def scenario() -> None:
        async with Database(database_url) as database:
            async with database.transaction() as connection:
                await connection.execute(
                    "INSERT INTO data_tables (data_table, size_bytes, home) VALUES ('clicks', 1, 'e')"
                )
            count = partial(use_store.count_uses, uses=[use, use])
            assert await database.run(partial(count, after=0, through=10))
            assert not await database.run(partial(count, after=0, through=10))
            assert await database.run(partial(count, after=10, through=12))
            assert await database.run(use_store.counted_through) == 12
            async with database.transaction() as connection:
                days = await (
                    await connection.execute("SELECT day, runs, gpu_hours, cpu_hours FROM data_reader_days")
                ).fetchall()
                reads = await (await connection.execute("SELECT count(*) FROM data_reads")).fetchone()
            assert (days, reads) == ([(3, 4, 8.0, 4.0)], (1,))

    asyncio.run(scenario())
