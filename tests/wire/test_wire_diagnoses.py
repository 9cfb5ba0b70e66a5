"""A diagnosis arrives at the client as it is in the service."""

from __future__ import annotations

import pytest

from domain.diagnosis import Diagnosis, Numbers, Quantity, Reason
from domain.identifiers import ClusterId, JobName, RegionId, TableId
from services.command_line.waiting_view import diagnosis_words
from services.database.diagnosis_documents import diagnosis_from_document
from services.wire.diagnoses import diagnosis_to_proto
from topmast import diagnoses
from topmast.v1 import workload_pb2

FULL = Diagnosis(
    Reason.NO_ROOM,
    RegionId("east"),
    ClusterId("e1"),
    JobName("train"),
    numbers=(Numbers(Quantity.TASKS, 8, 3),),
    since_s=0.0,
)


def received(diagnosis: Diagnosis) -> diagnoses.Diagnosis:
    sent = diagnosis_to_proto(diagnosis).SerializeToString()
    return diagnoses.diagnosis_from_proto(workload_pb2.Diagnosis.FromString(sent))


def test_everything_that_is_said_arrives() -> None:
    assert received(FULL) == diagnoses.Diagnosis(
        "no_room", "east", "e1", "train", "", (diagnoses.DiagnosisNumbers("tasks", 8, 3),), (), 0.0
    )
    data = Diagnosis(Reason.NO_DATA, RegionId("east"), field="tables", tables=(TableId("clicks"), TableId("views")))
    assert received(data) == diagnoses.Diagnosis("no_data", "east", "", "", "tables", (), ("clicks", "views"), None)


def test_cells_asked_for_and_owned_arrive_and_are_shown() -> None:
    cells = Diagnosis(
        Reason.TOPOLOGY, RegionId("east"), cells_asked="2 tasks of 8 GPUs", cells_owned="1 node of chain A"
    )
    assert (received(cells).cells_asked, received(cells).cells_owned) == ("2 tasks of 8 GPUs", "1 node of chain A")
    assert diagnosis_from_document(cells.as_json()) == cells
    assert diagnosis_words(received(cells)) == "topology: in east, asks for 2 tasks of 8 GPUs, owns 1 node of chain A"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_name_on_the_wire(reason: Reason) -> None:
    assert received(Diagnosis(reason)).reason == reason.value


def test_people_read_the_reason_the_numbers_and_the_place() -> None:
    assert diagnosis_words(received(FULL)).startswith("no_room: 3 of 8 tasks, in east/e1, job train, since 1970")
    assert diagnosis_words(received(Diagnosis(Reason.NO_ANSWER))) == "no_answer"
    assert diagnosis_words(None) == ""
