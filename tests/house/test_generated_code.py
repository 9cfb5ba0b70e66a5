"""The check for stale generated code notices every way of being stale; `make protos-check` applies it to the real."""

from pathlib import Path

from scripts.generate_protos import contents_of, differences_between
from tests.house.repository import ROOT, files


def test_a_changed_a_missing_and_a_left_over_file_are_noticed() -> None:
    committed = {"a_pb2.py": b"old", "gone_pb2.py": b"x", "same_pb2.py": b"y"}
    fresh = {"a_pb2.py": b"new", "same_pb2.py": b"y", "z_pb2.py": b"z"}
    assert differences_between(committed, fresh) == (
        "topmast/v1/a_pb2.py: differs from what its proto generates",
        "topmast/v1/gone_pb2.py: belongs to no proto",
        "topmast/v1/z_pb2.py: is missing",
    )
    assert differences_between(fresh, fresh) == ()


def test_every_proto_has_its_module_and_types() -> None:
    protos = [path for path in files() if path.suffix == ".proto"]
    generated = contents_of(ROOT / "topmast" / "v1")
    assert protos
    for proto in protos:
        assert proto.parent == Path("protos/topmast/v1")
        assert {f"{proto.stem}_pb2.py", f"{proto.stem}_pb2.pyi"} <= generated.keys()


def test_the_types_travel_with_the_package() -> None:
    assert {Path("topmast/py.typed"), Path("domain/py.typed")} <= set(files())
