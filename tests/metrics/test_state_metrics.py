"""What the leader counts: exact, read as a whole, and gone with the leadership."""

from __future__ import annotations

import asyncio

from services.clock import SystemClock
from services.configuration import Configuration
from services.database.engine import Database
from services.metrics.service_metrics import ServiceMetrics
from services.metrics.settings import MetricsSettings
from services.metrics.state_look import StateLook

_ROWS = """
    INSERT INTO queue_entries (workload, tenant, submitted_s, gpu_model, gpus, cpus, priority, within_quota, state, diagnosis)
         VALUES ('w1', 't', extract(epoch FROM now()) - 100, 'A100', 8, 1, 2, true, 'WAITING', '{"reason": "no_room"}'),
                ('w2', 't', extract(epoch FROM now()) - 50, 'A100', 4, 1, 2, true, 'WAITING', '{"reason": "no_room"}'),
                ('w3', 't', extract(epoch FROM now()), 'A100', 1, 1, NULL, false, 'PENDING', NULL);
    INSERT INTO regions VALUES ('east', 0);
    INSERT INTO clusters (cluster, region, position) VALUES ('east-a', 'east', 0);
    INSERT INTO machines (machine, cluster, rack, position, gpu_model, gpus, cpus, memory_gib, state)
         VALUES ('m0', 'east-a', 'r', 0, 'A100', 8, 64, 512, 'up'), ('m1', 'east-a', 'r', 1, 'A100', 8, 64, 512, 'down');
    INSERT INTO workloads (workload, tenant, name, specification, gpus, emulated, state, submitted_s)
         VALUES ('w4', 't', 'n', '', 3, true, 'PENDING', 0);
    INSERT INTO attempts (workload, attempt, tenant, region, state, priority, level, within_quota, guaranteed, gpus, cpus,
                          charges, dispatched_s, progress_at_start, progress, checkpoint_progress)
         VALUES ('w4', 1, 't', 'east', 'RUNNING', 2, 0, false, false, 3, 1, '{}', 0, 0, 0, 0);
    INSERT INTO placements VALUES ('w4', 1, 'main', 0, 'east-a', 'm0', '{0,1,2}', 1000, 1024);
    INSERT INTO leases (name, holder, address, process_id, token, expires_at, held_since)
         VALUES ('regional/east', 'h', 'a', 1, 7, now() - interval '1 hour', now()),
                ('regional/gone', 'h', 'a', 1, 3, now(), now())
"""


def test_the_state_is_counted(database_url: str) -> None:
    metrics = ServiceMetrics()

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, labels)

    async def look() -> None:
        async with Database(database_url, metrics=metrics) as database:
            async with database.transaction() as connection:
                for statement in _ROWS.split(";"):
                    await connection.execute(statement.encode())
            state_look = StateLook(database, SystemClock(), MetricsSettings(), metrics)
            await state_look.look()
            await state_look.look_at_size()

    asyncio.run(look())
    assert value("topmast_queue_workloads", priority="2", quota="within", state="WAITING", reason="no_room") == 2
    assert value("topmast_queue_workloads", priority="unranked", quota="over", state="PENDING", reason="none") == 1
    assert value("topmast_queue_gpus", priority="2", quota="within") == 12
    oldest_s = value("topmast_queue_oldest_wait_seconds", priority="2", quota="within")
    assert oldest_s is not None
    assert oldest_s >= 99
    assert value("topmast_gpus", region="east", cluster="east-a", gpu_model="A100", state="down") == 8
    assert value("topmast_gpus_in_use", region="east", cluster="east-a", gpu_model="A100", quota="over") == 3
    assert value("topmast_attempts", region="east", state="RUNNING") == 1
    assert (value("topmast_tiers_expected", kind="cluster"), value("topmast_tiers_alive", kind="cluster")) == (1, 0)
    assert value("topmast_lease_token", tier="regional/east") == 7
    assert value("topmast_lease_token", tier="regional/gone") is None
    assert value("topmast_invariant_violations", region="east") == 0
    assert (value("topmast_database_size_bytes") or 0) > 1_000_000
    assert (value("topmast_database_table_bytes", table="attempts") or 0) > 0
    assert value("topmast_database_transaction_seconds_count", kind="snapshot") == 2
    # Another process leads from now on.
    metrics.state.forget()
    assert value("topmast_tiers_expected", kind="cluster") is None
    assert value("topmast_database_size_bytes") is None


def test_where_nobody_reads_nothing_is_counted(database_url: str) -> None:
    metrics, settings = ServiceMetrics(), Configuration().with_metrics_at(None, None).metrics
    unserved = settings.model_copy(update={"port": None})

    async def run_for_a_while() -> None:
        async with Database(database_url) as database:
            looking = asyncio.create_task(StateLook(database, SystemClock(), unserved, metrics).run())
            await database.run(lambda connection: connection.execute("SELECT 1"))
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(run_for_a_while())
    assert metrics.state.state is None
