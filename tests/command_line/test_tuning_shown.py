"""What `topmast get` shows of tuned CPUs and memory."""

from services.command_line.workload_view import tunings_table
from topmast import JobTuning
from topmast.v1 import workload_pb2
from topmast.workloads import workload_from_proto


def test_an_attempt_shows_what_its_jobs_hold_beside_their_share() -> None:
    tuned = workload_pb2.JobTuning(
        job="train",
        cpus_per_gpu=5.0,
        memory_gib_per_gpu=20.0,
        share_cpus_per_gpu=3.0,
        share_memory_gib_per_gpu=62.5,
        tuning="synergy_tune",
        profile="res18",
        speed=5 / 3,
    )
    plain = workload_pb2.JobTuning(job="rest", cpus_per_gpu=3.0, share_cpus_per_gpu=3.0, speed=1.0)
    message = workload_pb2.Workload(
        workload="w1",
        state=workload_pb2.WORKLOAD_STATE_RUNNING,
        attempts=[workload_pb2.Attempt(attempt=1, region="eu", tunings=[tuned, plain])],
    )
    (attempt,) = workload_from_proto(message).attempts
    assert attempt.tunings[0] == JobTuning("train", 5.0, 20.0, 3.0, 62.5, "synergy_tune", "res18", 5 / 3)
    rows = tunings_table(attempt).rows
    assert rows[0] == ("train", "5", "3", "20 GiB", "62.50 GiB", "1.67", "synergy_tune", "res18")
    assert rows[1][-2:] == ("none", "none")
