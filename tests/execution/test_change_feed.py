import asyncio

from hypothesis import given
from hypothesis import strategies as st

from services.execution.change_feed import ChangeFeed, ChangeReader

Pair = tuple[str, int]


def by_name(change: Pair) -> str:
    return change[0]


def test_every_subscriber_gets_every_change_in_order() -> None:
    async def scenario() -> None:
        feed: ChangeFeed[Pair] = ChangeFeed(by_name)
        first, second = ChangeReader(feed), ChangeReader(feed)
        feed.publish(("a", 1))
        feed.publish(("b", 1))
        assert await first.next() == (("a", 1), ("b", 1))
        feed.publish(("c", 1))
        assert await first.next() == (("c", 1),)
        assert await second.next() == (("a", 1), ("b", 1), ("c", 1))

    asyncio.run(scenario())


def test_a_newer_change_takes_the_place_of_one_that_was_not_fetched() -> None:
    async def scenario() -> None:
        feed: ChangeFeed[Pair] = ChangeFeed(by_name)
        with ChangeReader(feed) as subscription:
            for change in (("a", 1), ("b", 1), ("a", 2)):
                feed.publish(change)
            assert subscription.take() == (("a", 2), ("b", 1))
            assert subscription.take() == ()

    asyncio.run(scenario())


def test_whoever_waits_is_woken() -> None:
    async def scenario() -> None:
        feed: ChangeFeed[Pair] = ChangeFeed(by_name)
        subscription = ChangeReader(feed)
        waiting = asyncio.ensure_future(subscription.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        feed.publish(("a", 1))
        assert await waiting == (("a", 1),)

    asyncio.run(scenario())


def test_a_finished_subscription_never_waits_again() -> None:
    async def scenario() -> None:
        feed: ChangeFeed[Pair] = ChangeFeed(by_name)
        subscription = ChangeReader(feed)
        waiting = asyncio.ensure_future(subscription.next())
        await asyncio.sleep(0)
        subscription.finish()
        assert await waiting == ()
        assert await subscription.next() == ()

    asyncio.run(scenario())


def test_a_closed_subscription_gets_nothing() -> None:
    async def scenario() -> None:
        one: ChangeFeed[Pair] = ChangeFeed(by_name)
        other: ChangeFeed[Pair] = ChangeFeed(by_name)
        with ChangeReader(one, other) as subscription:
            one.publish(("a", 1))
            other.publish(("b", 1))
            assert subscription.take() == (("a", 1), ("b", 1))
        one.publish(("c", 1))
        assert subscription.take() == ()

    asyncio.run(scenario())


@given(st.lists(st.one_of(st.tuples(st.sampled_from("abc"), st.integers()), st.none()), max_size=30))
def test_never_is_the_last_word_on_a_slot_lost(steps: list[Pair | None]) -> None:
    """None stands for the reader fetching what there is."""

    async def scenario() -> None:
        feed: ChangeFeed[Pair] = ChangeFeed(by_name)
        subscription = ChangeReader(feed)
        heard: dict[str, int] = {}
        for step in [*steps, None]:
            if step is None:
                heard.update(subscription.take())
            else:
                feed.publish(step)
        assert heard == dict(step for step in steps if step is not None)

    asyncio.run(scenario())
