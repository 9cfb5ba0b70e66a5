"""What a move of a table changes, as plans, files and answers name it."""

HOME = "home"
"""The target becomes the home, and the old home gives up its copy."""
HOME_KEEPING_COPY = "home_keeping_copy"
"""The target becomes the home, and the old home keeps its copy."""
COPY = "copy"
"""The target gets a copy more."""
