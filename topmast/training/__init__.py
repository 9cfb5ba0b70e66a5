"""What a training script uses under Topmast, and by hand: restore, step, save, stop in time.

from topmast import training

with training.init() as session:
    state = session.restore() or first_state()
    while session.progress < STEPS:
        state = one_step(state)
        if session.step() or session.progress % 100 == 0:
            session.save(state)
        if session.should_stop:
            break
"""

from topmast.training.checkpoints import StaleAttempt
from topmast.training.session import Membership, Session, init
from topmast.training.state_format import State

__all__ = ["Membership", "Session", "StaleAttempt", "State", "init"]
