"""When the next round may be over what followed the one before, as it was read to close that."""

from dataclasses import replace

from domain.identifiers import AttemptNumber, WorkloadId
from domain.rank import QueuePosition, Standing
from domain.workload import Workload
from regional_scheduler.queue_walk import QueueWalk, next_step
from regional_scheduler.rounds import Lot
from services.regional_scheduler.round_opener import Following
from tests.database.small_world import specification


def lot(number: int, level: int = 0) -> Lot:
    name = WorkloadId(f"w{number:06d}")
    position = QueuePosition(name, Standing(1, level), credit=0.0, submitted_s=float(number), within_quota=True)
    return Lot(Workload(name, specification(), float(number)), position, AttemptNumber(1))


def test_never_goes_on_over_a_workload_that_follows_once_more_with_a_worse_standing() -> None:
    walk = QueueWalk(number=3, scan_pass=7, ended=False)
    step = next_step(walk, 7, has_room=False)
    assert step is not None
    following = Following(7, walk, [lot(1), lot(2), lot(3, level=1)])
    assert following.is_next(step, 7)
    assert not replace(following, lots=[lot(1), lot(2), lot(1, level=1)]).is_next(step, 7)
