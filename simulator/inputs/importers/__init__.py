"""How files of jobs are read: one format each, all of the same shape (see `importer.py`), listed in `registry.py`."""
