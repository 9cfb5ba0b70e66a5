"""What a run came to: its tables, its figures, comparisons of several runs, and the report."""
