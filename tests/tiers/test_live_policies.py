"""What `topmast policies` says of the settings by which a service follows a policy: it is true."""

from __future__ import annotations

from services.configuration import Configuration
from services.live_policies import switched_on_by, why_not_followed
from services.queue_rules import why_not_live
from simulator.policies.registry import policies


def test_every_setting_that_is_named_does_what_the_policy_does() -> None:
    named = 0
    for name, policy in policies().items():
        settings = switched_on_by(policy)
        values = {setting: value for setting, value in settings.items() if setting in ("elastic", "tuning")}
        configuration = Configuration().model_copy(update=values)
        assert configuration.elastic_policy() == (policy.elastic if "elastic" in values else None)
        mechanism = configuration.tuning_mechanism()
        if "tuning" in values:
            assert mechanism is not None
            assert policy.tuning in (mechanism, None), name
        named += len(settings)
    assert named > 5


def test_what_a_service_does_not_follow_has_a_reason_and_no_setting() -> None:
    for policy in policies().values():
        assert (why_not_followed(policy) is None) or not switched_on_by(policy)
        if why_not_live(policy) is None:
            assert why_not_followed(policy) is None


def test_what_goes_beyond_an_order_is_switched_on_by_name() -> None:
    known = policies()
    assert switched_on_by(known["lyra"]) == {"elastic": "lyra", "inference.reclaiming": "fewest_evictions"}
    assert switched_on_by(known["lyra_loaning_only"]) == {"inference.reclaiming": "fewest_evictions"}
    assert switched_on_by(known["afs"]) == {"elastic": "afs"}
    assert switched_on_by(known["synergy_tune"]) == {"tuning": "synergy_tune"}
    assert switched_on_by(known["mast"]) == {}
    assert why_not_followed(known["easy_backfill"]) is not None
