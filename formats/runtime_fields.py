"""What the tasks of a job run in, in workload.yaml: `runtime`."""

from __future__ import annotations

from domain.runtime_environment import RuntimeEnvironment
from formats.schema import Schema


class RuntimeSchema(Schema):
    python: str = ""
    requirements: str | list[str] = ""
    conda: str = ""
    conda_file: str = ""
    image: str = ""


def runtime_of(schema: RuntimeSchema | None) -> RuntimeEnvironment | None:
    if schema is None:
        return None
    said = schema.requirements
    requirements = said if isinstance(said, str) else "".join(f"{line}\n" for line in said)
    return RuntimeEnvironment(schema.python, requirements, schema.conda, schema.conda_file, schema.image)


def runtime_document(runtime: RuntimeEnvironment | None) -> dict[str, object]:
    """The field `runtime`, if there is any."""
    if runtime is None:
        return {}
    said = {
        "python": runtime.python,
        "requirements": runtime.requirements,
        "conda": runtime.conda,
        "conda_file": runtime.conda_file,
        "image": runtime.image,
    }
    return {"runtime": {field: text for field, text in said.items() if text}}
