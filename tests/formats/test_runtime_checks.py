"""What the tasks of a job are to run in: what is acceptable, and what is said where it is not."""

from __future__ import annotations

import pytest

from formats.problems import FormatError
from formats.workload_file import workload_document, workload_from_document


def document(runtime: object, **job: object) -> dict[str, object]:
    described = {"name": "a", "resources": {"gpus": 1}, "runtime": runtime, "command": ["train"]} | job
    return {"name": "w", "tenant": "t", "jobs": [described]}


def test_requirements_are_a_list_or_the_text_of_a_file() -> None:
    text = workload_from_document(document({"requirements": "a==1\nb\n", "python": "/usr/bin/python3"}))
    assert text == workload_from_document(document({"requirements": ["a==1", "b"], "python": "/usr/bin/python3"}))
    assert workload_from_document(workload_document(text)) == text
    for field, said in (("conda", "mine"), ("conda_file", "name: x\n"), ("image", "ghcr.io/a/b:1@sha256:0f")):
        runtime = workload_from_document(document({field: said})).jobs[0].runtime
        assert getattr(runtime, field) == said


@pytest.mark.parametrize(
    ("runtime", "job", "sentence"),
    [
        ({}, {}, "runtime: is empty; give python, requirements, conda, conda_file or image"),
        ({"conda": "a", "python": "/p"}, {}, "runtime.conda: brings all that tasks run in, but stands beside python"),
        ({"image": "a", "conda": "b"}, {}, "runtime.conda: brings all that tasks run in, but stands beside image"),
        ({"python": "python3"}, {}, "runtime.python: must be the absolute path of an interpreter"),
        ({"python": "a.b:c"}, {}, "not 'a.b:c'; a function to run is --function, or `python` of the job"),
        ({"requirements": "a\n-r more.txt\n"}, {}, "line 2 ('-r more.txt') names another file"),
        ({"requirements": "./mine\n"}, {}, "line 1 ('./mine') names another file"),
        ({"requirements": "a @ file:///b\n"}, {}, "line 1 ('a @ file:///b') names another file"),
        ({"requirements": "x" * 65_537}, {}, "has 65537 characters; at most 65536 are possible"),
        ({"image": "--privileged"}, {}, "runtime.image: must be a container image"),
        ({"conda": "-n"}, {}, "runtime.conda: must be the name or path of a conda environment"),
        ({"python": "/p\0"}, {}, "has a NUL character"),
        (
            {"image": "a"},
            {"command": None, "emulated": {"duration_s": 1}},
            "runtime: stands beside emulated work, which has no process",
        ),
    ],
)
def test_what_cannot_be_is_refused(runtime: object, job: dict[str, object], sentence: str) -> None:
    with pytest.raises(FormatError) as caught:
        workload_from_document(document(runtime, **job))
    assert sentence in str(caught.value)
