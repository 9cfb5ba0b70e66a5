"""The code of the command line, the service and the simulator, as it is installed: in this one folder.

Its packages (`domain`, `services`, ...) import each other by their short names. Importing this package makes these names
known to its own process, and to no other: not to what the user runs in the same environment (docs/decisions/083).
"""

from __future__ import annotations

from topmast_server.own_packages import find_own_packages

find_own_packages()
