"""CPUs and memory for jobs that share machines, by how much each gains from them (Synergy §3, §4)."""
