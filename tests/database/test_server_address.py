from pathlib import Path

import pytest

from services.database import server_address
from services.database.errors import DatabaseUnavailable, UnsuitableDatabase
from services.database.server_address import URL_VARIABLE, normalise_url, resolve_database_url


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("postgresql://u:p@h:1/d", "postgresql://u:p@h:1/d"),
        ("postgres://h/d?sslmode=require", "postgresql://h/d?sslmode=require"),
        ("postgresql+psycopg:///d?host=%2Ftmp", "postgresql:///d?host=%2Ftmp"),
        ("postgresql://a:1,b:2/d", "postgresql://a:1,b:2/d?target_session_attrs=read-write"),
        (
            "postgresql:///d?host=a,b&target_session_attrs=primary",
            "postgresql:///d?host=a,b&target_session_attrs=primary",
        ),
    ],
    ids=["as it is", "short", "of SQLAlchemy", "several hosts", "several hosts, as it is"],
)
def test_every_usual_form_of_url_is_understood(given: str, normal: str) -> None:
    assert normalise_url(given) == normal


@pytest.mark.parametrize(
    "given", ["mysql://h/d", "h:5432/d", "postgresql://h/d?nonsense=1", "postgresql://h:port/d"], ids=str
)
def test_other_urls_are_refused_with_the_name_of_the_variable(given: str, tmp_path: Path) -> None:
    with pytest.raises((UnsuitableDatabase, DatabaseUnavailable), match=URL_VARIABLE):
        resolve_database_url(tmp_path, {URL_VARIABLE: given})


def test_named_database_is_used(database_url: str, tmp_path: Path) -> None:
    assert resolve_database_url(tmp_path, {URL_VARIABLE: f" {database_url} "}) == database_url


def test_silent_database_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=f"no database answers at {URL_VARIABLE}"):
        resolve_database_url(tmp_path, {URL_VARIABLE: f"postgresql:///d?host={tmp_path}"})


def test_old_server_is_refused(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_address, "OLDEST_MAJOR_VERSION", 99)
    with pytest.raises(UnsuitableDatabase, match=r"is PostgreSQL 18\.\d+: Topmast needs version 99 or newer"):
        resolve_database_url(tmp_path, {URL_VARIABLE: database_url})
