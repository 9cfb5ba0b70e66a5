"""The libraries that an installation brings, and those that the code imports, are the same."""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from services.command_line.extras import MODULES, Extra
from tests.house.repository import ROOT, python_files, tree
from topmast_server.own_packages import OWN_PACKAGES

NOT_REQUIRED = {"torch", "statsmodels", "opentelemetry", "pydantic_core"}
"""Imported where they are there (an error names the remedy where not), and a part of Pydantic."""


@cache
def _requirements(extra: str) -> frozenset[str]:
    """The distributions that an extra names, those of the extras that it names among them; "": of every installation."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    named = [
        Requirement(one) for one in (project["optional-dependencies"][extra] if extra else project["dependencies"])
    ]
    inner = {one for requirement in named if requirement.name == "topmast" for one in requirement.extras}
    own = frozenset(canonicalize_name(requirement.name) for requirement in named if requirement.name != "topmast")
    return own.union(*(_requirements(one) for one in inner))


@cache
def _modules_of(name: str) -> frozenset[str]:
    """The top-level modules that a distribution installs."""
    return frozenset(file.parts[0].removesuffix(".py") for file in distribution(name).files or ())


@cache
def _distributions_of(module: str) -> frozenset[str]:
    """Those that are required, in whichever install, and bring the module."""
    required = _requirements("") | _requirements(Extra.SERVER)
    return frozenset(name for name in required if module.split(".", maxsplit=1)[0] in _modules_of(name))


def test_the_modules_of_an_extra_are_those_that_pyproject_names() -> None:
    light = _requirements("")
    for extra in Extra:
        wanted = _requirements(extra)
        assert wanted
        unknown = {module for module in MODULES[extra] if not _distributions_of(module) & wanted}
        assert not unknown, f"pyproject.toml does not name what brings these in {extra}"
        covered = {name for module in MODULES[extra] for name in _distributions_of(module)}
        assert not wanted - covered, f"services/command_line/extras.py does not know these of {extra}"
        assert not light & wanted, "what every installation has is no matter of an extra"


def test_every_library_that_is_imported_is_required() -> None:
    everywhere = [*sorted(OWN_PACKAGES), "topmast", "topmast_server"]
    imported = set(_third_party(everywhere)) - NOT_REQUIRED
    assert len(imported) > 10
    assert not {module for module in imported if not _distributions_of(module)}


def test_the_client_imports_what_every_installation_has() -> None:
    # NumPy only for arrays that the user gives: then it is there.
    imported = set(_third_party(["topmast", "topmast_server"])) - NOT_REQUIRED - {"numpy"}
    assert imported
    assert not {module for module in imported if not _distributions_of(module) & _requirements("")}


def _third_party(packages: Iterable[str]) -> Iterator[str]:
    ours = {*OWN_PACKAGES, "topmast", "topmast_server"}
    for path in python_files(tuple(packages)):
        for node in ast.walk(tree(path)):
            match node:
                case ast.Import(names):
                    modules = [one.name for one in names]
                case ast.ImportFrom(module=str(module)):
                    modules = [module]
                case _:
                    continue
            for module in modules:
                name = module.split(".")[0]
                if name not in sys.stdlib_module_names and name not in ours:
                    yield name
