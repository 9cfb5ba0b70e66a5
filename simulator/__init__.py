"""The same decisions on a virtual clock: traces, baselines, reports; and the validator, which recomputes everything from the event log."""
