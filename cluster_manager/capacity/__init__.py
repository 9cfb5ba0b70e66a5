"""What one cluster has and which attempts hold it: machines and attempts in arrays, charges, counts of free capacity."""
