"""The table of docs/security.md says what the rules do."""

import re

from services.security.access_rules import ACCESS_RULES
from services.security.roles import Role
from tests.house.repository import ROOT

_ROW = re.compile(r"^\| `(\w+\.\w+)` \| (.+) \|$", re.MULTILINE)


def test_the_page_has_every_call_with_its_roles() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    documented = {match[1]: match[2].split(" | ") for match in _ROW.finditer(page)}
    asked = {path: rule for path, rule in ACCESS_RULES.items() if not rule.unasked}
    names = {path: f"{path[1:].partition('/')[0].rpartition('.')[2]}.{path.rpartition('/')[2]}" for path in asked}
    assert set(documented) == set(names.values())
    for path, rule in asked.items():
        for role, said in zip(Role, documented[names[path]], strict=True):
            limited = rule.tenant_scoped and role in {Role.TENANT, Role.READ_ONLY}
            expected = "-" if role not in rule.roles else "o" if limited else "+"
            assert said == expected, f"{names[path]} by {role}"
