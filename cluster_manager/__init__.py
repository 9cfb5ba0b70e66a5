"""One cluster's machines: what is free, where a job can go, and which attempts it would have to evict."""
