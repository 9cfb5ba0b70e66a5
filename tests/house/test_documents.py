"""Documents tell the truth: their commands exist, their links lead somewhere, every decision is in the index."""

import re
from pathlib import Path

import typer.main
from typer.core import TyperGroup

from services.command_line.main import app
from tests.house import documents
from tests.house.repository import ROOT, files, markdown_files, text

_DECISIONS = Path("docs/decisions")
_DECISION_NAME = re.compile(r"(?P<number>\d{3})-[a-z0-9-]+\.md")


def test_every_make_target_in_the_documents_exists() -> None:
    known = set(re.findall(r"^([a-z][a-z-]*):", text(Path("Makefile")), re.MULTILINE))
    written = {target: path for path in markdown_files() for target in documents.make_targets(text(path))}
    assert {"demo", "test"} <= written.keys()
    assert {target: str(path) for target, path in written.items() if target not in known} == {}


def test_every_make_target_is_phony_and_explained() -> None:
    makefile = text(Path("Makefile"))
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    assert len(targets) > 10
    assert targets == set(re.findall(r"^\.PHONY: ([a-z-]+)$", makefile, re.MULTILINE))
    assert targets == set(re.findall(r"^([a-z-]+):.*## \S", makefile, re.MULTILINE))


def test_every_command_in_the_documents_exists() -> None:
    written = {words: path for path in markdown_files() for words in documents.topmast_commands(text(path))}
    assert len(written) > 5
    assert {" ".join(words): str(path) for words, path in written.items() if not _is_command(words)} == {}


def test_a_command_that_does_not_exist_is_noticed() -> None:
    assert _is_command(("db", "upgrade"))
    assert _is_command(("get", "some-workload"))
    assert not _is_command(("db", "sideways"))
    assert not _is_command(("sbatch",))


def test_every_link_leads_to_a_tracked_file() -> None:
    tracked = set(files()) | {folder for path in files() for folder in path.parents}
    links = [(path, target) for path in markdown_files() for target in documents.relative_links(text(path))]
    assert links
    broken = [f"{path}: {target}" for path, target in links if _resolved(path, target) not in tracked]
    assert broken == []


def test_every_decision_is_indexed_under_its_title() -> None:
    index = text(_DECISIONS / "README.md")
    decisions = _decisions()
    assert decisions
    for path in decisions:
        title = text(path).splitlines()[0].removeprefix("# ")
        assert f"- [{title}]({path.name})" in index, f"the index lacks: - [{title}]({path.name})"
    assert len(re.findall(r"^- \[", index, re.MULTILINE)) == len(decisions)


def test_decisions_are_numbered_once() -> None:
    numbers = []
    for path in _decisions():
        match = _DECISION_NAME.fullmatch(path.name)
        assert match is not None, f"{path}: name it NNN-what-is-decided.md"
        numbers.append(match["number"])
        assert text(path).startswith(f"# {match['number']}: "), f"{path}: the title starts with the number"
    assert len(numbers) == len(set(numbers)), f"two decisions share a number: {numbers}"


def test_commands_and_links_are_found_in_a_document() -> None:
    page = (
        "See [the events](../events.md#fields), [a site](https://example.org).\n"
        "```\n$ make install && make demo   # both\nmake lint types PYTEST_FLAGS=x\ntopmast db upgrade\n"
        "topmast events --json | topmast validate - --fleet fleet.yaml\n[not](a-link.md)\n```\n"
    )
    assert documents.make_targets(page) == {"install", "demo", "lint", "types"}
    assert documents.topmast_commands(page) == {("db", "upgrade"), ("events",), ("validate",)}
    assert documents.relative_links(page) == ["../events.md"]


def _is_command(words: tuple[str, ...]) -> bool:
    """Whether the words lead to a command; what follows a command are its arguments."""
    command: object = typer.main.get_command(app)
    for word in words:
        if not isinstance(command, TyperGroup):
            return True
        command = command.commands.get(word)
    return command is not None


def _decisions() -> list[Path]:
    return [path for path in files() if path.parent == _DECISIONS and path.name != "README.md"]


def _resolved(document: Path, target: str) -> Path:
    return (ROOT / document.parent / target).resolve().relative_to(ROOT)
