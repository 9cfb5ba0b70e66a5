"""One region's part in the auction: what it can offer a workload, and what it cannot."""
