"""Who is next: priorities, fair shares between clients, and nobody who starves."""

from __future__ import annotations

from dataclasses import dataclass

from foveola.engine.order import FairOrder


@dataclass(frozen=True, eq=False)
class Item:
    name: str
    client: str = ""
    priority: int = 0
    cost: int = 10
    queued_at: float = 0.0


def served(order: FairOrder[Item], now: float = 0.0) -> str:
    names = ""
    while (item := order.best(now)) is not None:
        assert order.remove(item)
        names += item.name
    return names


def filled(*items: Item) -> FairOrder[Item]:
    order: FairOrder[Item] = FairOrder(patience_s=10)
    for item in items:
        order.push(item)
    return order


def test_one_client_is_served_in_order() -> None:
    assert served(filled(*(Item(name) for name in "abcde"))) == "abcde"
    assert FairOrder[Item](10).best(0) is None


def test_higher_priority_goes_first() -> None:
    assert served(filled(Item("a"), Item("b", priority=2), Item("c", priority=-1), Item("d", priority=2))) == "bdac"


def test_a_client_that_asks_much_waits_for_itself() -> None:
    flood = [Item(str(number), "flood") for number in range(4)]
    assert served(filled(*flood, Item("x", "other"), Item("y", "other"))) == "0x1y23"


def test_shares_are_of_tokens_and_not_of_requests() -> None:
    large = [Item(name, "large", cost=40) for name in "AB"]
    small = [Item(name, "small", cost=10) for name in "abcde"]
    assert served(filled(*large, *small)) == "AabcdBe"


def test_who_was_away_has_no_claim_to_the_past() -> None:
    order = filled(*(Item(name, "one") for name in "abc"))
    for _ in range(2):
        best = order.best(0)
        assert best is not None
        order.remove(best)
    for name in "xyz":
        order.push(Item(name, "two"))
    assert served(order) == "xcyz"


def test_who_waits_long_rises() -> None:
    items = (Item("old", queued_at=0), Item("urgent", priority=1, queued_at=25))
    assert served(filled(*items), now=25) == "oldurgent"  # two priorities higher by now
    assert served(filled(*items), now=9) == "urgentold"


def test_leaving() -> None:
    items = [Item(name) for name in "abc"]
    order = filled(*items)
    assert order.remove(items[1])
    assert not order.remove(items[1])
    assert len(order) == 2
    assert order.remove_all(lambda item: item.name == "c") == [items[2]]
    assert served(order) == "a"
