"""One cluster's machines: what is free, where a job can go, and whom it would have to evict."""
