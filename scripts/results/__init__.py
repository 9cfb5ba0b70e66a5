"""What the documents under docs/results are made with."""
