"""The command `topmast`: all commands, put together."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from services.command_line.commands import (
    apply,
    audit,
    cancel,
    certificates,
    change,
    changing,
    clean,
    clusters,
    compare,
    data,
    data_moves,
    database,
    demo,
    down,
    drain,
    events,
    execute,
    fleet,
    get,
    holding,
    inference,
    listing,
    loans,
    logs,
    losses,
    machines,
    mechanisms,
    policies,
    port_forward,
    profile,
    queue,
    report,
    run,
    serve,
    simulate,
    snapshot,
    status,
    submit,
    tenants,
    token,
    trace,
    tree,
    up,
    usage,
    validate,
    version,
    virtual_clusters,
    watch,
    whoami,
)
from services.command_line.extras import Extra
from services.command_line.failures import reported
from services.command_line.options import AddressOption

_SERVICE, _WORKLOADS, _RUNS = "The service", "Workloads", "Runs and their logs"

app = typer.Typer(
    name="topmast",
    epilog=(
        "Exit codes: 0 done; 1 a violation, or a workload that did not complete; 2 wrong usage; 3 not found; "
        "4 refused; 5 not available."
    ),
    no_args_is_help=True,
    # failures.py prints what goes wrong, in a sentence.
    pretty_exceptions_enable=False,
    # Boxes and colours are for people.
    rich_markup_mode="rich" if sys.stdout.isatty() and sys.stderr.isatty() else None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def topmast(address: AddressOption = None) -> None:
    """A global scheduler for ML training: one queue, many regions."""


def _add(
    panel: str,
    name: str,
    command: Callable[..., None],
    settings: dict[str, Any] | None = None,
    needs: Extra | None = None,
) -> None:
    app.command(name, rich_help_panel=panel, context_settings=settings)(reported(needs=needs)(command))


_add(_SERVICE, "up", up.up, needs=Extra.SERVER)
_add(_SERVICE, "down", down.down, needs=Extra.SERVER)
_add(_SERVICE, "clean", clean.clean, needs=Extra.SERVER)
_add(_SERVICE, "status", status.status)
_add(_SERVICE, "apply", apply.apply)
_add(_SERVICE, "fleet", fleet.fleet)
_add(_SERVICE, "machines", machines.machines)
_add(_SERVICE, "drain", drain.drain)
_add(_SERVICE, "undrain", drain.undrain)
_add(_SERVICE, "tenants", tenants.tenants)
_add(_SERVICE, "usage", usage.usage)
_add(_SERVICE, "virtual-clusters", virtual_clusters.virtual_clusters)
_add(_SERVICE, "loans", loans.loans)
_add(_SERVICE, "inference-scheduler", inference.inference_scheduler, needs=Extra.SERVER)
_add(_SERVICE, "mechanisms", mechanisms.list_mechanisms, needs=Extra.SERVER)
_add(_SERVICE, "version", version.version)
_add(_SERVICE, "whoami", whoami.whoami)
_add(_SERVICE, "audit", audit.audit)
app.add_typer(token.app, rich_help_panel=_SERVICE)
app.add_typer(serve.app, rich_help_panel=_SERVICE)
app.add_typer(certificates.app, rich_help_panel=_SERVICE)
app.add_typer(database.app, rich_help_panel=_SERVICE)
data.app.command("moves")(reported()(data_moves.moves))
app.add_typer(data.app, rich_help_panel=_SERVICE)
app.add_typer(clusters.app, rich_help_panel=_SERVICE)
app.add_typer(losses.cluster_app, rich_help_panel=_SERVICE)
app.add_typer(losses.region_app, rich_help_panel=_SERVICE)
app.add_typer(snapshot.app, rich_help_panel=_SERVICE)
app.add_typer(profile.app, rich_help_panel=_WORKLOADS)
_add(_WORKLOADS, "submit", submit.submit)
_add(_WORKLOADS, "run", run.run, run.CONTEXT_SETTINGS)
_add(_WORKLOADS, "list", listing.list_workloads)
_add(_WORKLOADS, "get", get.get)
_add(_WORKLOADS, "tree", tree.tree)
_add(_WORKLOADS, "watch", watch.watch)
_add(_WORKLOADS, "logs", logs.logs)
_add(_WORKLOADS, "exec", execute.execute)
_add(_WORKLOADS, "port-forward", port_forward.port_forward)
_add(_WORKLOADS, "cancel", cancel.cancel)
_add(_WORKLOADS, "hold", holding.hold)
_add(_WORKLOADS, "release", holding.release)
_add(_WORKLOADS, "requeue", holding.requeue)
_add(_WORKLOADS, "change", changing.change)
_add(_WORKLOADS, "resize", change.resize)
_add(_WORKLOADS, "retune", change.retune)
_add(_WORKLOADS, "migrate", change.migrate)
_add(_WORKLOADS, "queue", queue.queue)
_add(_RUNS, "events", events.events)
_add(_RUNS, "validate", validate.validate, needs=Extra.SIMULATOR)
_add(_RUNS, "report", report.report, needs=Extra.SIMULATOR)
_add(_RUNS, "demo", demo.demo, needs=Extra.SERVER)
_add(_RUNS, "simulate", simulate.simulate, needs=Extra.SIMULATOR)
_add(_RUNS, "compare", compare.compare, needs=Extra.SIMULATOR)
_add(_RUNS, "policies", policies.list_policies, needs=Extra.SIMULATOR)
app.add_typer(trace.app, rich_help_panel=_RUNS)


def main() -> None:
    """Runs the command line; ends the process with the exit code."""
    app(prog_name="topmast")
