"""Speed measurements against the budgets of the design; run with ``python -m benchmarks.<name>``."""
