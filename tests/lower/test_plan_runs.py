"""Where a run over several tokens rounds otherwise than one over a single token, nothing may be guessed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from foveola.artifact import Bundle
from foveola.lower.plan_runs import rounds_by_the_run

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(("precision", "rounds"), [("int4", True), ("int4/32@1", False), ("fp32", False)])
def test_products_with_activations_of_8_bits_round_by_the_run(
    compiled: Callable[[str], Bundle], precision: str, rounds: bool
) -> None:
    assert rounds_by_the_run(compiled(precision)) is rounds
