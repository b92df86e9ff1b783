"""The word filter at 100 000 words, Chinese and English: time per token, and streams full of disguised banned words.

Every stream is cut into random chunks and interleaved with others. A leak is a banned normal form that stands in the
normal form of what left, looked for by trying every part of it against the set of words.
"""

from __future__ import annotations

import argparse
import random
import string
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.guard.wordfilter import ACTIONS, WordStream, scrub
from foveola.guard.words import Words, compile_words, parse_words

US_PER_TOKEN, LEAKS = 10.0, 0
COMMON = [chr(code) for code in range(0x4E00, 0x4E00 + 3000)]
SEPARATORS = ["", "", "", " ", "-", ".", "\u200b", "*", "\u00ad", "·"]
TWINS = str.maketrans("aceopxyi", "асеорхуі")


def banned(count: int, rng: random.Random) -> dict[str, bool]:
    words: set[str] = set()
    while len(words) < count // 2:
        words.add("".join(rng.choice(COMMON) for _ in range(rng.randint(2, 6))))
    while len(words) < count:
        words.add("".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(5, 14))))
    return dict.fromkeys(sorted(words), False)


def disguised(word: str, rng: random.Random) -> str:
    style = rng.random()
    if style < 0.2:
        word = word.translate(TWINS)
    elif style < 0.4:
        word = word.upper()
    elif style < 0.6:
        word = "".join(chr(ord(c) + 0xFEE0) if c in string.ascii_lowercase else c for c in word)
    return "".join(character + rng.choice(SEPARATORS) for character in word)


def text_of(words: Sequence[str], rng: random.Random, pieces: int) -> str:
    parts = []
    for _ in range(pieces):
        kind = rng.random()
        if kind < 0.25:
            parts.append(disguised(rng.choice(words), rng))
        elif kind < 0.35:
            parts.append(rng.choice(words)[: rng.randint(1, 5)])  # the beginning of one
        elif kind < 0.65:
            parts.append("".join(rng.choice(COMMON) for _ in range(rng.randint(1, 6))))
        else:
            parts.append("".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(2, 9))) + " ")
    return "".join(parts)


def interleaved(compiled: Words, texts: Sequence[str], action: Any, rng: random.Random) -> list[str]:
    """Each text's output when all are fed at once, chunk by random chunk."""
    streams = [WordStream(compiled, action) for _ in texts]
    out, at = [""] * len(texts), [0] * len(texts)
    while unfinished := [number for number, text in enumerate(texts) if at[number] < len(text)]:
        number = rng.choice(unfinished)
        step = rng.randint(1, 7)
        out[number] += streams[number].feed(texts[number][at[number] : at[number] + step])
        at[number] += step
    return [text + stream.end() for text, stream in zip(out, streams, strict=True)]


def leaks_of(compiled: Words, words: set[str], longest: int, text: str) -> int:
    form = compiled.normal(text)
    return sum(form[i : i + n] in words for i in range(len(form)) for n in range(2, longest + 1))


def us_per_token(compiled: Words, words: Sequence[str], tokens: int, dirty: float) -> float:
    """CPU time of ``feed`` per token of about four characters, with a banned word in ``dirty`` of the tokens."""
    best = float("inf")
    for seed in range(4):  # new tokens each time: what a list keeps of the last ones must not help too much
        stream, given = WordStream(compiled, "mask"), tokens_of(words, tokens, dirty, random.Random(seed))
        began = time.process_time()
        for token in given:
            stream.feed(token)
        best = min(best, (time.process_time() - began) / len(given) * 1e6)
    return best


def tokens_of(words: Sequence[str], count: int, dirty: float, rng: random.Random) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        if rng.random() < dirty:
            word = rng.choice(words)
            found += [word[at : at + 3] for at in range(0, len(word), 3)]
        elif rng.random() < 0.5:
            found.append("".join(rng.choice(COMMON) for _ in range(2)))
        else:
            found.append(" " + "".join(rng.choice("etaoinshrdlu") for _ in range(3)))
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, metavar="N", default=100_000)
    parser.add_argument("--words", type=int, metavar="N", default=100_000)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    streams, count = (500, 5000) if arguments.quick else (arguments.streams, arguments.words)
    rng = random.Random(1)
    words = banned(count, rng)
    began = time.process_time()
    data = compile_words(words)
    compile_s = time.process_time() - began
    began = time.process_time()
    compiled = parse_words(data, "bench.words")
    load_s = time.process_time() - began
    listed = list(words)
    speeds = {f"{dirty:.0%}": round(us_per_token(compiled, listed, 50_000, dirty), 3) for dirty in (0.0, 0.02, 0.2)}
    tell(f"{count} words, {speeds} µs per token")
    forms = {compiled.normal(word) for word in words}
    longest = max(map(len, forms))
    leaks = differ = removed = 0
    for number in range(0, streams, 4):
        texts = [text_of(listed, rng, rng.randint(2, 6)) for _ in range(4)]
        action = ACTIONS[number // 4 % 3]
        for text, left in zip(texts, interleaved(compiled, texts, action, rng), strict=True):
            leaks += leaks_of(compiled, forms, longest, left)
            differ += left != scrub(compiled, text, action)
            removed += left != text
        if number % 10_000 == 0:
            tell(f"{number} streams, {removed} changed, {leaks} leaks, {differ} that depend on chunks")
    figures = {
        "words": count,
        "file_bytes": len(data),
        "compile_cpu_s": round(compile_s, 3),
        "load_cpu_s": round(load_s, 4),
        "us_per_token_by_share_of_banned": speeds,
        "streams": streams,
        "streams_changed": removed,
        "streams_that_depend_on_chunks": differ,
    }
    return figures, [
        Bar("filter, µs of CPU per token", max(speeds.values()), US_PER_TOKEN, at_most=True),
        Bar("leaks", leaks, LEAKS, at_most=True),
        Bar("streams whose output depends on chunks", differ, 0, at_most=True),
    ]


SCRIPT = Script("g2", "wordfilter", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).resolve().parent))
