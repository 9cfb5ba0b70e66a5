"""Passwords of URLs are hidden in what people read, and left out of the arguments of a process that stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.command_line.hidden_url import without_option
from services.database.errors import UnsuitableDatabase
from services.database.server_address import normalise_url
from services.security.secret_texts import without_passwords

_URL = "postgresql://topmast:s3cret@db.example:5432/topmast"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"no answer at {_URL}", "no answer at postgresql://topmast:***@db.example:5432/topmast"),
        ("host=db password=s3cret user=me", "host=db password=*** user=me"),
        ("host=db password='s3 cret' user=me", "host=db password=*** user=me"),
        ("postgresql://db/x?user=me&password=s3cret&port=1", "postgresql://db/x?user=me&password=***&port=1"),
        ("host=db sslpassword=s3cret", "host=db sslpassword=***"),
        ("PGPASSWORD=s3cret topmast", "PGPASSWORD=*** topmast"),
        ('password="s3 cret" user=me', "password=*** user=me"),
        ("postgresql://me:s3@cret@db:5432/x", "postgresql://me:***@db:5432/x"),
        ("postgresql://me@db:5432/x", "postgresql://me@db:5432/x"),
        (f"there is no token 'topmast_{'ab' * 8}_{'cd' * 32}'", f"there is no token 'topmast_{'ab' * 8}_***'"),
        ("see http://127.0.0.1:80/a and mail me@example.org", "see http://127.0.0.1:80/a and mail me@example.org"),
    ],
)
def test_passwords_are_hidden_and_nothing_else(text: str, shown: str) -> None:
    assert without_passwords(text) == shown


def test_a_long_text_of_a_user_takes_no_long_time() -> None:
    """Where the time grew with the square of the length, each of these took hours."""
    for text in ("a" * 2**20, f"a://{'b' * 2**20}", f"a://b:{'c' * 2**20}", "password=' " * 2**17):
        assert len(without_passwords(text)) > 2**17


def test_the_option_that_holds_a_password_is_left_out() -> None:
    for typed in (["--database-url", _URL], [f"--database-url={_URL}"]):
        assert without_option(["-m", "topmast", "serve", *typed, "global"], _URL) == [
            "-m",
            "topmast",
            "serve",
            "global",
        ]
    assert without_option(["serve", "--home", "/srv"], _URL) == ["serve", "--home", "/srv"]


def test_what_cannot_be_read_as_an_url_is_not_repeated() -> None:
    with pytest.raises(UnsuitableDatabase, match="%2F") as refused:
        normalise_url("postgresql://topmast:s3cret/with-slash@db.example:5432/topmast")
    assert "s3cret" not in str(refused.value)


def test_a_tier_that_was_typed_with_a_password_serves_without_it_among_its_arguments() -> None:
    """It ends, for nothing answers there: after it has begun anew with the URL in its environment."""
    traced = (
        "import sys, os\n"
        "sys.stderr.write('began with ' + ' '.join(sys.orig_argv[1:]).replace(chr(10), ';') + '\\n')\n"
        "from services.command_line.main import main; main()"
    )
    url = "postgresql://topmast:s3cret@127.0.0.1:9/topmast"
    command = [sys.executable, "-c", traced, "serve", "global", "--database-url", url]
    environment = {name: text for name, text in os.environ.items() if name != "TOPMAST_DATABASE_URL"}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    began = [line for line in ended.stderr.splitlines() if line.startswith("began with")]
    assert ["s3cret" in line for line in began] == [True, False]
    rest = [line for line in ended.stderr.splitlines() if not line.startswith("began with")]
    assert "no database answers" in "".join(rest)
    assert "s3cret" not in "".join(rest)


@pytest.mark.parametrize("to_a_file", [True, False], ids=["file", "standard error"])
def test_a_log_hides_passwords_also_in_tracebacks_and_shows_no_variables(tmp_path: Path, to_a_file: bool) -> None:
    begun = "topmast_0123456789abcdef_"
    program = (
        "import structlog, sys; from pathlib import Path; from services.log_output import configure_logging\n"
        f"configure_logging(Path(sys.argv[1]) if {to_a_file} else None)\n"
        f"url = {_URL.replace('s3cret', 's3{}')!r}.format('cret')\n"
        f"def judge(presented):\n    raise RuntimeError(f'no answer at {{url}}')\n"
        f"try:\n    judge({begun!r} + 'ab' * 8)\n"
        "except RuntimeError:\n    structlog.get_logger().exception('failed', url=url, tried=[url])\n"
    )
    log = tmp_path / "log"
    ended = subprocess.run([sys.executable, "-c", program, str(log)], check=True, capture_output=True, text=True)
    written = log.read_text() if to_a_file else ended.stderr
    for said in ("failed", "judge", "no answer at postgresql://topmast:***@"):
        assert said in written
    assert "s3cret" not in written
    assert f"{begun}abab" not in written
