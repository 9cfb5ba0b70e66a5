"""The steps that bring a database to the shape of models.py, oldest first in versions/."""
