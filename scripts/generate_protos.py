"""Generate the Python code of the protos into topmast/v1, or check that what is committed is fresh.

``python -m scripts.generate_protos`` writes; with ``--check`` nothing is written and the exit code is 1 when a
committed file differs by a byte, is missing, or belongs to no proto any more. The tools come from the environment of
the running interpreter, with the versions of constraints.txt, so that every checkout generates the same bytes.
"""

import argparse
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc

_ROOT: Final = Path(__file__).resolve().parent.parent
_PROTOS: Final = _ROOT / "protos"
_API: Final = Path("topmast/v1")
_GENERATED_SUFFIXES: Final = (".py", ".pyi")
_PACKAGE_DOCSTRING: Final = '"""The messages and services of protos/topmast/v1; generated, never edited."""\n'
_PLUGINS: Final = ("protoc-gen-mypy", "protoc-gen-mypy_grpc")
_GRPC_SUFFIXES: Final = ("_pb2_grpc.py", "_pb2_grpc.pyi")


class ProtosNotGenerated(Exception):
    """The compiler or one of its plug-ins is missing, or refused the protos."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files, write nothing")
    check_only = bool(parser.parse_args(arguments).check)
    try:
        with tempfile.TemporaryDirectory(prefix="topmast-protos-") as folder:
            generate(Path(folder))
            fresh = contents_of(Path(folder) / _API)
    except ProtosNotGenerated as failure:
        print(failure, file=sys.stderr)
        return 1
    differences = differences_between(contents_of(_ROOT / _API), fresh)
    if check_only:
        return say_whether_stale(differences, len(fresh))
    write(fresh)
    print(f"{_API}: {len(fresh)} generated files, {len(differences)} changed")
    return 0


def generate(into: Path) -> None:
    """Compile every proto into ``into/topmast/v1``; raises ProtosNotGenerated."""
    sources = sorted((_PROTOS / _API).glob("*.proto"))
    if not sources:
        raise ProtosNotGenerated(f"there is no proto in {(_PROTOS / _API).relative_to(_ROOT)}")
    descriptors = into / "descriptors.bin"
    command = [
        "protoc",
        f"--proto_path={_PROTOS}",
        f"--proto_path={files('grpc_tools') / '_proto'}",
        f"--descriptor_set_out={descriptors}",
        f"--python_out={into}",
        f"--grpc_python_out={into}",
        *(f"--plugin={name}={plugin_path(name)}" for name in _PLUGINS),
        f"--mypy_out=quiet:{into}",
        f"--mypy_grpc_out=quiet:{into}",
        *(str(source) for source in sources),
    ]
    if protoc.main(command) != 0:
        raise ProtosNotGenerated("the protos do not compile; the compiler's reason stands above")
    for stem in stems_without_services(descriptors):
        for suffix in _GRPC_SUFFIXES:
            (into / f"{stem}{suffix}").unlink()
    (into / _API / "__init__.py").write_text(_PACKAGE_DOCSTRING, encoding="utf-8")


def plugin_path(name: str) -> str:
    """Where the plug-in is installed: beside the running interpreter first, then on the search path."""
    search = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=search)
    if found is None:
        raise ProtosNotGenerated(f"{name} is not installed here; run 'make install' and use its environment")
    return found


def stems_without_services(descriptors: Path) -> tuple[str, ...]:
    """The protos, as paths without suffix, that define no service: their gRPC modules would be empty."""
    compiled = FileDescriptorSet.FromString(descriptors.read_bytes())
    return tuple(file.name.removesuffix(".proto") for file in compiled.file if not file.service)


def contents_of(folder: Path) -> dict[str, bytes]:
    """The generated files in a folder by name, in the order of their names."""
    if not folder.is_dir():
        return {}
    paths = sorted(path for path in folder.iterdir() if path.suffix in _GENERATED_SUFFIXES)
    return {path.name: path.read_bytes() for path in paths}


def differences_between(committed: dict[str, bytes], fresh: dict[str, bytes]) -> tuple[str, ...]:
    """One line per file that regenerating would change, in the order of the names."""
    lines: list[str] = []
    for name in sorted(committed.keys() | fresh.keys()):
        if name not in fresh:
            lines.append(f"{_API / name}: belongs to no proto")
        elif name not in committed:
            lines.append(f"{_API / name}: is missing")
        elif committed[name] != fresh[name]:
            lines.append(f"{_API / name}: differs from what its proto generates")
    return tuple(lines)


def say_whether_stale(differences: tuple[str, ...], fresh_count: int) -> int:
    """Print what is stale; returns the exit code."""
    if not differences:
        print(f"{_API}: {fresh_count} generated files are fresh")
        return 0
    print("\n".join(differences), file=sys.stderr)
    print("The generated code is stale: run 'make protos' and commit the result.", file=sys.stderr)
    return 1


def write(fresh: dict[str, bytes]) -> None:
    """Make topmast/v1 hold exactly these generated files; other files in it are left alone."""
    target = _ROOT / _API
    target.mkdir(parents=True, exist_ok=True)
    for name in contents_of(target).keys() - fresh.keys():
        (target / name).unlink()
    for name, content in fresh.items():
        (target / name).write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
