"""Where packages are installed: `topmast` as it is, all others below `topmast_server` (docs/decisions/083).

Everything else about the distribution is in pyproject.toml.
"""

import sys
from pathlib import Path

from setuptools import find_packages, setup

# A build in isolation does not look into this folder by itself.
sys.path.insert(0, str(Path(__file__).parent))

from topmast_server.own_packages import OWN_PACKAGES

_SERVER = "topmast_server"

setup(
    packages=[
        *find_packages(include=["topmast", "topmast.*", _SERVER]),
        *(f"{_SERVER}.{package}" for name in OWN_PACKAGES for package in find_packages(include=[name, f"{name}.*"])),
    ],
    package_dir={f"{_SERVER}.{name}": name for name in OWN_PACKAGES},
)
