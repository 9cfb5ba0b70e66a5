"""The same decisions on a virtual clock: traces, baselines, reports; and the validator that trusts nobody."""
