"""What one cluster has and who holds it: machines and attempts in arrays, charges, counts of free capacity."""
