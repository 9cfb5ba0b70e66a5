"""What is said of a runner that did not answer."""

from typing import Any

from ray.exceptions import ActorDiedError, RayTaskError

from services.execution.runner_pool import reason_of


def test_an_exception_of_the_runner_itself_is_named_and_not_where_it_was_raised() -> None:
    cause = TypeError("unexpected keyword")
    made: Any = RayTaskError  # Ray's own has no types
    of_ray = made("TaskRunner.fetch_files", "Traceback (most recent call last):\n  ...\n", cause)
    assert reason_of(of_ray) == "its runner failed: TypeError: unexpected keyword"
    assert reason_of(of_ray.as_instanceof_cause()) == "its runner failed: TypeError: unexpected keyword"
    assert "\n" not in reason_of(ActorDiedError())
