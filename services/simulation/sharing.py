"""Whether a simulated fleet is shared by virtual clusters, and what it is compared with (HiveD §3.2, §5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_manager.cells.declared import declarations_of, fleet_with_virtual_clusters, weights_of
from domain.declared_cells import Declarations
from domain.fleet import Fleet
from domain.tenant import Tenant
from formats.problems import FieldProblem, FormatError
from formats.trace import TraceRow
from formats.virtual_clusters import read_virtual_clusters
from simulator.inputs.virtual_clusters import divided, owned_gpus, virtual_clusters_of_trace
from simulator.policies.policy import Policy


@dataclass(frozen=True, slots=True)
class Sharing:
    """What the options say of virtual clusters."""

    file: Path | None = None
    """Whose virtual clusters take the place of those of the tenants."""
    of_trace: bool = False
    """Each tenant of the trace gets one by its share of the work."""
    with_quotas: bool = False
    """Policies that make no scan passes make them too: what is over quota is opportunistic."""
    against_private: bool = False
    """Each tenant that owns cells is also simulated alone with these."""


@dataclass(frozen=True, slots=True)
class SharedFleet:
    """The fleet, and what its tenants declare to own."""

    fleet: Fleet
    declarations: Declarations | None
    """None: what the tenants say themselves."""


def shared_fleet(
    sharing: Sharing, fleet: Fleet, tenants: Sequence[Tenant] | None, rows: Sequence[TraceRow], source: str
) -> SharedFleet:
    """The fleet with the virtual clusters that are asked for; raises FormatError where they do not match."""
    if sharing.of_trace:
        declarations: Declarations | None = virtual_clusters_of_trace(fleet, rows)
    else:
        declarations = read_virtual_clusters(sharing.file) if sharing.file is not None else None
    weights = weights_of(tenants or ())
    if declarations is not None:
        shared = divided(fleet, declarations, str(sharing.file or "--vcs-of-trace"), weights)
    else:
        shared = fleet_with_virtual_clusters(fleet, declarations_of(tenants or ()), source, weights)
    if sharing.against_private and not owned_gpus(shared):
        description = "no tenant owns cells, so there are no private clusters; say --vcs or --vcs-of-trace"
        raise FormatError("--against-private", [FieldProblem("", description)])
    return SharedFleet(shared, declarations)


def policy_of_run(sharing: Sharing, policy: Policy) -> Policy:
    """The policy, with scan passes where they are asked for."""
    return replace(policy, scans=True) if sharing.with_quotas and not policy.scans else policy
