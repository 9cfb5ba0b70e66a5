"""The checks for stale generated code notice every way of being stale; `make protos-check client-check` apply them."""

from pathlib import Path

import pytest

from scripts.generate_protos import contents_of, differences_between
from scripts.generate_sync_client import (
    MODULES,
    ClientNotGenerated,
    Module,
    generate,
    stale_modules,
    synchronous,
    tidied,
)
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


def test_the_blocking_client_is_fresh() -> None:
    package = ROOT / "topmast"
    fresh = {module.generated: generate(module, package) for module in MODULES}
    assert fresh.keys() == {
        "access.py",
        "client.py",
        "connection.py",
        "data_placement.py",
        "fleet_operations.py",
        "fleet_upload.py",
        "log_reader.py",
        "package_upload.py",
        "task_sessions.py",
    }
    assert stale_modules(fresh, package) == ()


def test_a_changed_and_a_missing_module_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "same.py").write_text("same", encoding="utf-8")
    (tmp_path / "changed.py").write_text("old", encoding="utf-8")
    fresh = {"same.py": "same", "missing.py": "new", "changed.py": "new"}
    assert stale_modules(fresh, tmp_path) == ("changed.py", "missing.py")


@pytest.mark.parametrize(
    ("source", "blocking"),
    [
        ("async def f(): return await g(await h())", "def f(): return g(h())"),
        ("async with aclosing(a) as b: pass", "with closing(a) as b: pass"),
        ("await anext(x async for x in y)", "next(x for x in y)"),
        ("from topmast.async_waiting import AsyncLock", "from topmast.waiting import Lock"),
        ("grpc.aio.Channel | None", "grpc.Channel | None"),
        ("f: Callable[[], Awaitable[dict[str, int]]]", "f: Callable[[], dict[str, int]]"),
        ("g: AsyncGenerator[dict[str, int], None]", "g: Generator[dict[str, int], None, None]"),
        ("g: AsyncIterator[Awaitable[AsyncGenerator[A, None]]]", "g: Iterator[Generator[A, None, None]]"),
        ("f(await_s, 'asyncs')  # awaits", "f(await_s, 'asyncs')  # awaits"),
        ("f('× here', await g)  # × there", "f('× here', g)  # × there"),
    ],
)
def test_each_token_is_translated(source: str, blocking: str) -> None:
    assert synchronous(source + "\n", {}) == blocking + "\n"


def test_phrases_are_replaced_before_tokens() -> None:
    source = '"""Await it."""\nf: AsyncGenerator[int, None]\n'
    phrases = {"Await it": "Call it", "AsyncGenerator[int, None]": "AsyncIterator[int]"}
    assert synchronous(source, phrases) == '"""Call it."""\nf: Iterator[int]\n'


def test_a_phrase_that_does_not_stand_there_once_and_a_word_without_a_phrase_are_refused() -> None:
    for source in ("here\n", "gone + gone\n"):
        with pytest.raises(ClientNotGenerated, match=r"in the source once: 'gone'"):
            synchronous(source, {"gone": "x"})
    with pytest.raises(ClientNotGenerated, match=r"speaks of asyncio.*'await it\"\"\"'"):
        synchronous('def f():\n    """Then await it"""\n', {})


def test_the_generated_module_is_tidy_and_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "async_reader.py").write_text(
        '"""Reads."""\n\n'
        "from collections.abc import AsyncGenerator, Awaitable\n\n\n"
        "async def read(of: Awaitable[AsyncGenerator[int, None]]) -> AsyncGenerator[int, None]:\n"
        "    async for item in await of:\n"
        "        yield item\n",
        encoding="utf-8",
    )
    assert generate(Module("async_reader.py", "reader.py"), tmp_path) == (
        "# Generated from async_reader.py by `make client`; never edited.\n"
        '"""Reads."""\n\n'
        "from collections.abc import Generator\n\n\n"
        "def read(of: Generator[int, None, None]) -> Generator[int, None, None]:\n"
        "    yield from of\n"
    )


def test_a_result_that_is_no_python_is_refused() -> None:
    with pytest.raises(ClientNotGenerated, match=r"ruff refuses topmast/broken\.py"):
        tidied("def f(:\n", "topmast/broken.py")
