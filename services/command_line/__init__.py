"""The command `topmast`. Each command is a file of `commands`, and thin: what it calls does the work."""
