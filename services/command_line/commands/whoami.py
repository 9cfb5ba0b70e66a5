"""topmast whoami: as whom Topmast sees its caller."""

from __future__ import annotations

from services.command_line.connection import connect
from services.command_line.options import AddressOption, JsonOption
from services.command_line.output import show_json, show_line
from services.command_line.wording import moment


def whoami(address: AddressOption = None, as_json: JsonOption = False) -> None:
    """Show as whom Topmast sees you: role, tenants, and by what it knows you."""
    with connect(address) as client:
        me = client.access.who_am_i()
    if as_json:
        show_json(me)
        return
    of = f" for {', '.join(me.tenants)}" if me.tenants else ""
    known = "nobody is asked who is calling" if me.kind == "unasked" else f"by {me.kind} {me.credential}"
    until = f", until {moment(me.expires_s)}" if me.expires_s is not None else ""
    show_line(f"{me.name}: {me.role}{of} ({known}{until})")
