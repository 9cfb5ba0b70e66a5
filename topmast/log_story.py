"""What is told between the lines of a log: why there are none yet, and what happened between two attempts."""

from __future__ import annotations

from collections.abc import Callable

from topmast.logs import LogSelection, state_words
from topmast.workloads import Attempt, Workload


class LogStory:
    """Tells each thing once. `printed` is set when the attempt that is read has printed something."""

    def __init__(self, selection: LogSelection, told: Callable[[str], None] | None) -> None:
        self._selection = selection
        self._told = told
        self._said = ""
        self._begun: set[int] = set()
        self._ends_told: set[int] = set()
        self.printed = False

    def look(self, now: Workload) -> None:
        """The workload is like that now; tells how attempts that were read have ended, and why there is none to read."""
        if not self._selection.goes_on_after(now):
            return
        ended = [
            one for one in now.attempts if one.attempt in self._begun - self._ends_told and one.ended_s is not None
        ]
        for attempt in ended:
            self._ends_told.add(attempt.attempt)
            self._say(f"attempt {attempt.attempt} of {now.workload} {end_words(attempt)}")
        if self._selection.choose_attempt(now, after=max(self._begun, default=0)) is None and now.queue_position:
            what = "nothing is printed yet" if not self._begun else "nothing more is printed for now"
            self._say(f"{what}: {now.workload} is {state_words(now)}")

    def begin(self, attempt: Attempt) -> None:
        """The output of that attempt comes next."""
        if self._begun:
            self._say(f"attempt {attempt.attempt} is in {attempt.region}; its output follows")
        elif self._selection.follow and attempt.started_s is None and attempt.ended_s is None:
            self._say(f"nothing is printed yet: {_starting_words(attempt)}")
        self._begun.add(attempt.attempt)
        self.printed = False

    def end(self, now: Workload, attempt: Attempt) -> None:
        """All of it was read that there is; says so when it is nothing."""
        if self.printed or self._selection.follow:
            return
        if attempt.ended_s is not None:
            self._say(f"attempt {attempt.attempt} of {now.workload} printed nothing; it {end_words(attempt)}")
        elif attempt.started_s is None:
            self._say(f"nothing is printed yet: {_starting_words(attempt)}")
        else:
            self._say(f"nothing is printed yet: attempt {attempt.attempt} of {now.workload} runs in {attempt.region}")

    def _say(self, sentence: str) -> None:
        # What it waits for may be told anew with each change of the workload.
        if self._told is not None and sentence != self._said:
            self._said = sentence
            self._told(sentence)


def end_words(attempt: Attempt) -> str:
    """was preempted by w-12 (resnet), priority 1; failed: exit code 3."""
    if attempt.preempted_by is not None and attempt.end == "preempted":
        return f"was preempted by {attempt.preempted_by.words}"
    words = {"completed": "completed", "failed": "failed", "cancelled": "was cancelled"}.get(
        attempt.end, f"was evicted ({attempt.end.replace('_', ' ')})"
    )
    return f"{words}: {attempt.end_reason}" if attempt.end_reason else words


def _starting_words(attempt: Attempt) -> str:
    return f"attempt {attempt.attempt} is starting in {attempt.region}: its environment and its tasks are being set up"
