"""The queue: quota, credit, levels and the scan pass (MAST §4.2). Pure: no I/O, no clock, no randomness.

Start reading at scan_pass.py; view_builder.py makes its input from the columns of the database.
"""
