"""HiveD's sharing safety on a real trace: runs, pictures, document."""
