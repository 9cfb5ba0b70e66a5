"""What the tasks of a job run in, beside their variables: an interpreter, packages, an image."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuntimeEnvironment:
    """Made ready on each machine before the tasks there start. Empty text: nothing is asked for.

    `requirements` may stand beside `python`; each of `conda`, `conda_file` and `image` stands alone.
    """

    python: str = ""
    """The absolute path of an interpreter that the machines have."""
    requirements: str = ""
    """The content of a requirements file of pip."""
    conda: str = ""
    """The name or path of a conda environment that the machines have."""
    conda_file: str = ""
    """The content of a conda environment file."""
    image: str = ""
    """A container image."""
