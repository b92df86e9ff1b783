"""Streaming text: the same for every chunking, whole characters only, nothing that may become a stop string."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from foveola.engine.text import Detokeniser, StopStrings, TokenBytes
from foveola.exchange import Damaged


def byte_level_tokenizer() -> Tokenizer:
    """All 256 bytes, a few merges, one special token and two added ordinary ones, one of them with a space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["scratch scratches 划痕 划痕 pit pits crack"] * 4, trainer)
    tokenizer.add_special_tokens([AddedToken("<|end|>", special=True)])
    tokenizer.add_tokens([AddedToken("划"), AddedToken("two words")])
    return tokenizer


TOKENIZER = byte_level_tokenizer()
TABLE = TokenBytes(TOKENIZER.to_str())
VOCAB = TOKENIZER.get_vocab_size()
TOKENS = st.lists(st.integers(0, VOCAB - 1), max_size=40)
STOPS = st.lists(st.text("aab", min_size=1, max_size=5), max_size=4)
TEXTS = st.text("aabbc", max_size=40)


def chunked(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(edges)]


def naive_stop(text: str, stops: list[str]) -> tuple[str, bool]:
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return text[: end - max(map(len, ending))], True
    return text, False


def longest_open_suffix(text: str, stops: list[str]) -> int:
    return max(
        (n for n in range(1, len(text) + 1) for stop in stops if len(stop) > n and stop.startswith(text[-n:])),
        default=0,
    )


@given(TOKENS)
def test_detokenising_one_by_one_equals_decoding_at_once(tokens: list[int]) -> None:
    detokeniser = Detokeniser(TABLE)
    pieces = [detokeniser.push(token) for token in tokens] + [detokeniser.flush()]
    assert "".join(pieces) == TOKENIZER.decode(tokens, skip_special_tokens=True)


@given(st.text(max_size=30))
def test_any_text_comes_back_and_no_piece_splits_a_character(text: str) -> None:
    detokeniser = Detokeniser(TABLE)
    pieces = [detokeniser.push(token) for token in TOKENIZER.encode(text, add_special_tokens=False).ids]
    assert "".join(pieces) == text
    assert detokeniser.flush() == ""
    for piece in pieces:
        piece.encode()  # a half of a surrogate pair would raise
        assert "\ufffd" not in piece or "\ufffd" in text


def test_an_incomplete_character_waits_and_is_marked_at_the_end() -> None:
    first, second, _ = (TOKENIZER.token_to_id(char) for char in ("å", "Ľ", "½"))  # the bytes of 国: e5 9b bd
    detokeniser = Detokeniser(TABLE)
    assert [detokeniser.push(first), detokeniser.push(second)] == ["", ""]
    assert detokeniser.flush() == "\ufffd"


def test_a_token_beyond_the_tokenizer_is_empty() -> None:
    assert TABLE[VOCAB + 1000] == b""


@pytest.mark.parametrize(
    ("decoder", "kind"), [({"type": "WordPiece"}, "WordPiece"), (None, "none"), ({"type": "Sequence"}, "none")]
)
def test_other_decoders_are_refused(decoder: dict[str, Any] | None, kind: str) -> None:
    with pytest.raises(Damaged, match=f"decoder of type {kind}; expected ByteLevel, or that of a SentencePiece"):
        TokenBytes(json.dumps({"decoder": decoder, "model": {"vocab": {}}}))


SENTENCE_PIECE = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
PIECES = ["<s>", "▁part", "▁", "s", "<0xE5>", "<0x88>", "<0x92>", "<0x0A>", "▁▁two", "划"]


@pytest.mark.parametrize("decoder", [SENTENCE_PIECE, decoders.Metaspace()], ids=["sequence", "metaspace"])
@pytest.mark.parametrize("ids", [[1, 3], [3, 1], [2, 1], [8, 9, 1], [1, 4, 5, 6, 7, 1], []], ids=str)
def test_pieces_of_sentence_piece_decode_as_the_tokenizer_does(decoder: Any, ids: list[int]) -> None:
    if decoder is not SENTENCE_PIECE and 4 in ids:
        pytest.skip("this decoder knows no bytes")
    tokenizer = Tokenizer(models.BPE({piece: at for at, piece in enumerate(PIECES)}, [], byte_fallback=True))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens(["<s>"])
    detokeniser = Detokeniser(TokenBytes(tokenizer.to_str()))
    ours = "".join(detokeniser.push(token) for token in ids) + detokeniser.flush()
    assert ours == tokenizer.decode(ids)


@given(STOPS, TEXTS, st.lists(st.integers(0, 100), max_size=8))
def test_stop_strings_give_the_same_for_every_chunking(stops: list[str], text: str, cuts: list[int]) -> None:
    automaton = StopStrings(stops)
    shown = "".join(automaton.push(chunk) for chunk in chunked(text, cuts))
    expected, stopped = naive_stop(text, stops)
    assert automaton.stopped == stopped
    assert shown + automaton.flush() == expected


@given(STOPS, TEXTS, st.lists(st.integers(0, 100), max_size=8))
def test_exactly_the_longest_open_suffix_is_held_back(stops: list[str], text: str, cuts: list[int]) -> None:
    automaton = StopStrings(stops)
    seen = shown = ""
    for chunk in chunked(text, cuts):
        seen += chunk
        shown += automaton.push(chunk)
        if automaton.stopped:
            return
        assert len(seen) - len(shown) == longest_open_suffix(seen, stops)
        assert seen.startswith(shown)


def test_nothing_follows_a_stop() -> None:
    automaton = StopStrings(["END"])
    assert automaton.push("to the E") == "to the "
    assert automaton.push("NDless") == ""
    assert automaton.stopped
    assert automaton.push(" more") == automaton.flush() == ""


def test_without_stops_everything_passes() -> None:
    automaton = StopStrings([])
    assert automaton.push("all") == "all"
    assert automaton.flush() == ""
