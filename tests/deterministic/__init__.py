"""The shell's own logic on a simulated clock, transport and database: every schedule is made of a seed, and can be made again."""
