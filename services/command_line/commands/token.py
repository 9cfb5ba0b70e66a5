"""topmast token: the tokens by which callers are known."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from services.command_line.connection import CHANGING_ATTEMPTS, connect
from services.command_line.durations import duration_option
from services.command_line.failures import reported
from services.command_line.options import AddressOption, DatabaseOption, HomeOption, JsonOption
from services.command_line.output import TextTable, note, show, show_json, show_line
from services.command_line.wording import moment

if TYPE_CHECKING:
    from topmast import AccessToken

app = typer.Typer(name="token", help="Tokens, by which callers are known.", no_args_is_help=True)

ROLES: Final = ("admin", "operator", "tenant", "read-only", "tier")

RoleOption = Annotated[str, typer.Option("--role", help=f"One of {', '.join(ROLES)}.", show_default=False)]
NameOption = Annotated[str, typer.Option("--name", help="Whose it is: it stands in the audit log.", show_default=False)]
TenantsOption = Annotated[
    list[str] | None,
    typer.Option("--tenant", metavar="TENANT", help="For this tenant; may be repeated. For tenant and read-only."),
]
ExpiresOption = Annotated[
    str, typer.Option("--expires", metavar="DURATION", help="Not valid any more after 30d, 12h, ...; by itself never.")
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="Write it into this file, that only its user can read, straight from the database: for the first tokens of a"
        " service. Does nothing where the file has a valid one.",
    ),
]
TokenArgument = Annotated[str, typer.Argument(metavar="ID", help="Its id: topmast token list.", show_default=False)]


@app.command("create")
@reported()
def create(
    role: RoleOption,
    name: NameOption,
    tenant: TenantsOption = None,
    expires: ExpiresOption = "",
    file: FileOption = None,
    database_url: DatabaseOption = None,
    home: HomeOption = None,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token, and show it, once: nothing but a hash of it is stored."""
    if role not in ROLES:
        raise typer.BadParameter(f"{role!r} does not exist; it must be one of {', '.join(ROLES)}", param_hint="--role")
    expires_after_s = duration_option(expires, "--expires")
    if file is not None:
        _into_file(file, role, name, tuple(tenant or ()), expires_after_s, database_url, home)
        return
    if database_url is not None or home is not None:
        raise typer.BadParameter("is of use with --file only", param_hint="--database-url, --home")
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        made = client.access.create_token(name, role, tenants=tenant or (), expires_after_s=expires_after_s)
    if as_json:
        show_json({"secret": made.secret, "token": made.token})
        return
    # Alone on its line, for scripts.
    show_line(made.secret)
    note(f"token {made.token.token} for {name} ({role}); keep it safe, it is not shown again")


def _into_file(
    file: Path,
    role: str,
    name: str,
    tenants: tuple[str, ...],
    expires_after_s: float | None,
    database_url: str | None,
    home: Path | None,
) -> None:
    from services.command_line.log_aside import log_aside
    from services.command_line.reached_database import reached_database
    from services.database.engine import Database
    from services.security.home_tokens import keep_token_file
    from services.security.roles import Role
    from services.security.tokens import scope_problem

    problem = scope_problem(Role(role), tenants)
    if problem is not None:
        raise typer.BadParameter(problem[1], param_hint="--tenant")
    expires_at = None if expires_after_s is None else datetime.fromtimestamp(_now_s() + expires_after_s, UTC)

    async def make(url: str) -> bool:
        async with Database(url) as database:
            return await database.run(
                lambda connection: keep_token_file(
                    connection, file, Role(role), name, "topmast token create --file", tenants, expires_at
                )
            )

    with log_aside(), reached_database(database_url, home) as url:
        made = asyncio.run(make(url))
    note(f"{file} has a new token for {name} ({role})" if made else f"{file} has a valid token already")


def _now_s() -> float:
    return datetime.now(UTC).timestamp()


@app.command("list")
@reported()
def list_tokens(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show the tokens that were made, without their secrets."""
    with connect(address) as client:
        tokens = client.access.tokens()
    if as_json:
        for token in tokens:
            show_json(token)
        return
    head = ("id", "name", "role", "tenants", "state", "made", "by", "last used")
    rows = [
        (
            token.token,
            token.name,
            token.role,
            ", ".join(token.tenants) or "all",
            _state(token),
            moment(token.made_s),
            token.made_by,
            "never" if token.used_s is None else moment(token.used_s),
        )
        for token in tokens
    ]
    show(TextTable("Tokens", head, rows))


def _state(token: AccessToken) -> str:
    if token.revoked:
        return f"revoked by {token.revoked_by}"
    if token.expires_s is None:
        return "valid"
    return f"expired {moment(token.expires_s)}" if token.expires_s <= _now_s() else f"until {moment(token.expires_s)}"


@app.command("revoke")
@reported()
def revoke(token: TokenArgument, address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Have a token refused from now on; within five seconds everywhere, also by what is under way."""
    with connect(address, attempts=CHANGING_ATTEMPTS) as client:
        revoked = client.access.revoke_token(token)
    if as_json:
        show_json(revoked)
        return
    show_line(f"token {revoked.token} of {revoked.name} is revoked")
