"""What gRPC is told to connect to, where a client knows one address or several."""

import pytest

from topmast import Client, InvalidArgumentError, UnreachableError
from topmast.targets import channel_target


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("scheduler:7460", "scheduler:7460"),
        ("10.0.0.1:7460,10.0.0.2:7461", "ipv4:10.0.0.1:7460,10.0.0.2:7461"),
        ("[fd00::1]:7460, [fd00::2]:7460", "ipv6:[fd00::1]:7460,[fd00::2]:7460"),
        ("10.0.0.1:7460,[fd00::2]:7460", "ipv6:[::ffff:10.0.0.1]:7460,[fd00::2]:7460"),
        ("nobody.invalid:7460,127.0.0.1:7461", "ipv4:127.0.0.1:7461"),
    ],
)
def test_several_addresses_are_one_target(address: str, target: str) -> None:
    assert channel_target(address) == target


def test_names_that_nobody_knows_lead_nowhere() -> None:
    with pytest.raises(UnreachableError, match=r"no host of a\.invalid:1,b\.invalid:2 is known"):
        channel_target("a.invalid:1,b.invalid:2")


@pytest.mark.parametrize("address", ["127.0.0.1:1,", "127.0.0.1:1,localhost", ",127.0.0.1:1"])
def test_each_of_several_must_be_an_address(address: str) -> None:
    with pytest.raises(InvalidArgumentError, match="host:port, or several of them with commas between"):
        Client(address)
