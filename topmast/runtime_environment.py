"""What the tasks of a job run in, as users write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from topmast.messages import message_of, strings
from topmast.v1 import workload_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeEnvironment:
    """Made ready on each machine before the tasks there start; where it cannot be, the attempt fails and says why.

    `requirements` are those of pip, as a list or the content of a file; they may stand beside `python`, the absolute path of
    an interpreter that the machines have. Each of the others stands alone: `conda` names an environment that the machines
    have, `conda_file` is the content of a conda environment file, `image` a container image.
    """

    python: str = ""
    requirements: str | Sequence[str] = ""
    conda: str = ""
    conda_file: str = ""
    image: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.requirements, str):
            lines = strings("requirements", self.requirements)
            object.__setattr__(self, "requirements", "".join(f"{line}\n" for line in lines))


def runtime_to_proto(runtime: RuntimeEnvironment) -> workload_pb2.RuntimeEnvironment:
    return message_of(
        workload_pb2.RuntimeEnvironment,
        python=runtime.python,
        requirements=str(runtime.requirements),
        conda=runtime.conda,
        conda_file=runtime.conda_file,
        image=runtime.image,
    )


def runtime_from_proto(message: workload_pb2.RuntimeEnvironment) -> RuntimeEnvironment:
    return RuntimeEnvironment(
        python=message.python,
        requirements=message.requirements,
        conda=message.conda,
        conda_file=message.conda_file,
        image=message.image,
    )
