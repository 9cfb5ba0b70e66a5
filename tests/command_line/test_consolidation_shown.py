"""What `topmast get` shows of placement by skew."""

from services.command_line.workload_view import details_table
from topmast.v1 import workload_pb2
from topmast.workloads import Consolidation, workload_from_proto


def test_a_workload_shows_whether_its_jobs_are_consolidated_and_why() -> None:
    message = workload_pb2.Workload(
        workload="w1",
        state=workload_pb2.WORKLOAD_STATE_RUNNING,
        specification=workload_pb2.WorkloadSpecification(name="vgg", tenant="vision"),
        consolidations=[
            workload_pb2.Consolidation(
                job="train",
                consolidate=True,
                reason="above_packlimit",
                skew=0.7,
                skew_source="declared",
                packlimit=0.4,
                sentence="consolidated: its skew 0.7 (declared) is above PACKLIMIT 0.4",
            ),
            workload_pb2.Consolidation(
                job="feed", reason="unknown_skew", packlimit=0.4, sentence="not consolidated: ..."
            ),
        ],
    )
    workload = workload_from_proto(message)
    assert workload.consolidations == (
        Consolidation(
            "train",
            True,
            "above_packlimit",
            0.7,
            "declared",
            0.4,
            "consolidated: its skew 0.7 (declared) is above PACKLIMIT 0.4",
        ),
        Consolidation("feed", False, "unknown_skew", None, "", 0.4, "not consolidated: ..."),
    )
    rows = {row[0]: row[1] for row in details_table(workload).rows}
    assert rows["place of train"] == "consolidated: its skew 0.7 (declared) is above PACKLIMIT 0.4"
    assert rows["place of feed"] == "not consolidated: ..."
