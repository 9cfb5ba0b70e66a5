"""How many examples a property is tried with: in proportion, so that `make test` is short and `make test-nightly` long."""

from hypothesis import settings

_USUAL = 100


def examples(usual: int) -> int:
    """As many as `usual` is of 100, of those that the chosen profile gives; at least one."""
    chosen = settings.default
    assert chosen is not None, "hypothesis has a default as soon as it is imported"
    return max(1, usual * chosen.max_examples // _USUAL)
