"""What a service says of itself in numbers: metrics as Prometheus reads them (decision 101)."""
