"""topmast certs: a private certificate authority, and what it signs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from services.command_line.exit_code import ExitCode
from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.options import JsonOption
from services.command_line.output import note, show_json, show_line

app = typer.Typer(
    name="certs", help="Certificates of tiers and clients, signed by an authority of your own.", no_args_is_help=True
)

FolderOption = Annotated[
    Path, typer.Option("--folder", file_okay=False, help="Where they are: what 'topmast certs init' made.")
]
DaysOption = Annotated[int, typer.Option("--days", min=1, max=7300, help="For how long certificates are good.")]

_DAYS = 365
_WARNED_DAYS = 30


@app.command("init")
@reported(needs=Extra.SERVER)
def init(
    out: Annotated[Path, typer.Option("--out", file_okay=False, help="A folder that is not there yet, or is empty.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="By which a tier is reached: name or address; may be repeated."),
    ] = None,
    days: DaysOption = _DAYS,
) -> None:
    """Make an authority, and the certificate of the tiers, for localhost and each --host.

    authority.pem goes to everybody, authority-key.pem to nobody.
    """
    from services.security.certificate_folder import initialize

    initialize(out, host or [], time.time(), days)
    show_line(f"made an authority, and the certificate of the tiers, in {out}")


@app.command("client")
@reported(needs=Extra.SERVER)
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose certificate it is.")],
    folder: FolderOption,
    role: Annotated[
        str, typer.Option("--role", help="What its owner may do: admin, operator, tenant, read-only.")
    ] = "tenant",
    tenant: Annotated[
        list[str] | None, typer.Option("--tenant", help="For which tenant its owner speaks; may be repeated.")
    ] = None,
    days: DaysOption = _DAYS,
) -> None:
    """Make the certificate of a client, which says who it is."""
    from services.security.certificate_folder import add_client
    from services.security.certificate_identity import CertificateIdentity

    made = add_client(folder, CertificateIdentity(role, name, tuple(tenant or ())), time.time(), days)
    show_line(f"made {made} and its key {made.with_name(f'{name}-key.pem')}")


@app.command("rotate")
@reported(needs=Extra.SERVER)
def rotate(
    folder: FolderOption,
    finish: Annotated[
        bool, typer.Option("--finish", help="Trust the former authority no more: when everybody has what is new.")
    ] = False,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="Also for this host, of a new tier; may be repeated."),
    ] = None,
    days: DaysOption = _DAYS,
) -> None:
    """Make a new authority and new certificates for all; the former ones stay good until --finish.

    With --host that of the tiers is good for other hosts as well.
    """
    from services.security.certificate_folder import finish_rotation
    from services.security.certificate_folder import rotate as make_anew

    if finish:
        if host:
            raise typer.BadParameter("goes with a rotation, not with its end; leave it out.", param_hint="--host")
        finish_rotation(folder)
        show_line(f"{folder}: the former authority is trusted no more")
        return
    make_anew(folder, time.time(), days, host or [])
    show_line(f"{folder}: a new authority has signed new certificates; the former one is trusted until --finish")


@app.command("show")
@reported(needs=Extra.SERVER)
def show(folder: FolderOption, as_json: JsonOption = False) -> None:
    """List the certificates of a folder: whose, by whom, how many days are left. Ends with 1 when one has ended."""
    from services.security.certificate_folder import held_certificates
    from services.security.certificates import days_left

    now = time.time()
    rows = [
        {
            "file": str(held.file),
            "subject": held.certificate.subject.rfc4514_string(),
            "issuer": held.certificate.issuer.rfc4514_string(),
            "days_left": round(days_left(held.certificate, now), 1),
            "former": not held.is_current,
        }
        for held in held_certificates(folder)
    ]
    if as_json:
        show_json(rows)
    for row in rows:
        if not as_json:
            former = ", of the former authority" if row["former"] else ""
            show_line(f"{row['file']}: {row['subject']}, by {row['issuer']}, {row['days_left']} days left{former}")
    left = [(float(str(row["days_left"])), row["file"]) for row in rows]
    for days, file in left:
        if days <= 0:
            note(f"topmast: {file} has ended; `topmast certs rotate` makes new certificates")
        elif days < _WARNED_DAYS:
            note(f"topmast: {file} ends in {days} days; `topmast certs rotate` makes new certificates")
    if any(days <= 0 for days, _ in left):
        raise typer.Exit(ExitCode.NOT_WELL)
