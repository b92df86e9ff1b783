"""The decoder against llama.cpp, OpenVINO GenAI, onnxruntime-genai and transformers on the same language model.

Each rival runs in its own environment, named on the command line; all answer the same prompt in turns, greedily, with
the same number of threads. Compared are tokens per second of prefill and of decoding, as medians over the turns. What
the weights are stored in is told for each, since only the same number of bits, head included, is a fair comparison:

    python bench/e1_rivals.py --bundle smollm2.bundle --storage "int4/32, head int8/32" \\
        --rival "llama.cpp=envs/llama/bin/python=smollm2-q4_0.gguf=Q4_0, head Q8_0" \\
        --rival "openvino-genai=envs/genai/bin/python=smollm2-ov=int4 sym, head int8"

With --answers, real questions are answered by our engine with and without its accelerations, and the texts compared.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.machine import pinned, read_bandwidth
from foveola.bench.model import decoder_bytes, describe_model
from foveola.bench.stats import median
from foveola.engine.engine import Engine
from foveola.engine.features import Chunk
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions, usable_cores
from foveola.engine.runner import OrtRunner
from foveola.exchange import Invalid, Request, Sampling, Turn

OURS = "foveola"
QUESTIONS = (
    "Repeat this list in alphabetical order, one per line: bolt M6, nut M6, washer M6, bolt M8, nut M8, washer M8.",
    "Copy this text and correct its spelling: The quick borwn fox jumps over the dog. The quick borwn fox runs away.",
    "Summarise in one sentence: The camera found a scratch at the top left of part 4711. Part 4711 was set aside.",
    "Write a JSON object with the fields lot, defect and place for: lot A-17, defect scratch, place top left.",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", required=True, help="a language model, compiled")
    parser.add_argument("--storage", default="", help="what our weights are stored in, in words")
    parser.add_argument(
        "--rival", action="append", default=[], metavar="NAME=PYTHON=MODEL=STORAGE", help="a contender; repeatable"
    )
    parser.add_argument("--prompt", type=int, metavar="N", default=512)
    parser.add_argument("--tokens", type=int, metavar="N", default=128)
    parser.add_argument("--turns", type=int, metavar="N", default=7)
    parser.add_argument("--cores", type=int, metavar="N", default=2)
    parser.add_argument("--answers", action="store_true", help="also the accelerations, on real questions")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    cores = min(arguments.cores, usable_cores())
    turns = 2 if arguments.quick else arguments.turns
    prompt, tokens = (64, 8) if arguments.quick else (arguments.prompt, arguments.tokens)
    bundle = Bundle.open(arguments.bundle)
    ids = np.random.default_rng(0).integers(10, min(bundle.model["text"]["vocab_size"], 40000), prompt).tolist()
    with pinned(cores):
        contenders: list[Ours | Rival] = [Ours(bundle, cores, arguments.storage)]
        try:
            contenders += [Rival(text, cores) for text in arguments.rival]
            spent = measured(contenders, ids, tokens, turns, tell)
        finally:
            for contender in contenders:
                contender.close()
        bandwidth = read_bandwidth(cores)
        figures, bars = compared(contenders, spent, prompt, tokens)
        decoder = decoder_bytes(bundle)
        rate = figures["rows"][0]["decode_tokens_per_s"]
        figures |= {
            "read_gb_per_s": round(bandwidth / 1e9, 2),
            "share_of_bandwidth": round(decoder * rate / bandwidth, 3),
        }
        if decoder > 500e6:  # a smaller one is not bound by memory
            bars.append(Bar("share of the read bandwidth while decoding", figures["share_of_bandwidth"], 0.75))
        if arguments.answers:
            tell("accelerations")
            figures["accelerations"] = accelerated(bundle, cores, 1 if arguments.quick else 3)
            bars.append(Bar("accelerations, times as fast on real answers", figures["accelerations"]["ratio"], 1.3))
            bars.append(
                Bar("answers that the accelerations changed", figures["accelerations"]["changed"], 0, at_most=True)
            )
    return {"model": describe_model(bundle), "cores": cores, "prompt": prompt, "tokens": tokens, **figures}, bars


class Ours:
    """The engine's runner, in this process."""

    name = OURS

    def __init__(self, bundle: Bundle, cores: int, storage: str) -> None:
        self.storage = storage
        self._runner = OrtRunner(bundle, EngineOptions(threads=cores, slots=1))
        self._axes = int(bundle.model["text"].get("position_axes", 3))

    def measure(self, ids: list[int], tokens: int) -> tuple[float, float]:
        positions = np.tile(np.arange(len(ids)), (self._axes, 1))
        started = time.perf_counter()
        logits, _ = self._runner.prefill(0, Chunk(np.array(ids, np.int64), positions, 0, np.arange(0), None))
        token = int(logits.argmax())
        first = time.perf_counter()
        for step in range(tokens):
            at = len(ids) + step
            token = int(self._runner.decode([token], [at], [at])[0].argmax())
        return first - started, time.perf_counter() - first

    def close(self) -> None:
        """Nothing of it is outside this process."""


class Rival:
    """A worker in another environment."""

    def __init__(self, text: str, cores: int) -> None:
        parts = text.split("=", 3)
        if len(parts) != 4:
            raise Invalid(f"--rival is {text!r}; expected NAME=PYTHON=MODEL=STORAGE.", field="rival")
        self.name, python, model, self.storage = parts
        worker = Path(__file__).with_name("e1_rivals_worker.py")
        self._process = subprocess.Popen(
            [python, str(worker), self.name, model, str(cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._read()

    def measure(self, ids: list[int], tokens: int) -> tuple[float, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ids": ids, "tokens": tokens}) + "\n")
        self._process.stdin.flush()
        answer = self._read()
        return float(answer["prefill_s"]), float(answer["decode_s"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries say things of their own
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise Invalid(f"{self.name} ended before it answered; start its worker by hand to see why.", field="rival")


def measured(
    contenders: Sequence[Ours | Rival], ids: list[int], tokens: int, turns: int, tell: Tell
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of prefill and of decoding per contender and turn; the first turn warms up and does not count."""
    spent: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contenders}
    for turn in range(turns + 1):
        tell(f"turn {turn} of {turns}")
        order = contenders if turn % 2 else list(reversed(contenders))
        for contender in order:
            seconds = contender.measure(ids, tokens)
            if turn:
                spent[contender.name].append(seconds)
    return spent


def compared(
    contenders: Sequence[Ours | Rival], spent: dict[str, list[tuple[float, float]]], prompt: int, tokens: int
) -> tuple[dict[str, Any], list[Bar]]:
    rows = [
        {
            "contender": one.name,
            "storage": one.storage,
            "prefill_tokens_per_s": round(prompt / median([prefill for prefill, _ in spent[one.name]]), 2),
            "decode_tokens_per_s": round(tokens / median([decode for _, decode in spent[one.name]]), 2),
        }
        for one in contenders
    ]
    bars = []
    for what in ("prefill", "decode"):
        key = f"{what}_tokens_per_s"
        best = max((float(row[key]) for row in rows[1:]), default=float("nan"))
        bars.append(Bar(f"{what}: our tokens per second over the best rival's", float(rows[0][key]) / best, 1.0))
    return {"rows": rows}, bars


def accelerated(bundle: Bundle, cores: int, rounds: int) -> dict[str, float]:
    """Seconds of the decoding of real answers, plainly and with guesses, in turns; and how many texts differ."""
    engines = {guess: Engine.open(bundle, EngineOptions(threads=cores, guess=guess)) for guess in (False, True)}
    spent: dict[bool, float] = {False: 0.0, True: 0.0}
    texts: dict[bool, list[str]] = {False: [], True: []}
    for number in range(rounds + 1):
        for question in QUESTIONS:
            for guess in (False, True) if number % 2 else (True, False):
                request = Request("r", (Turn("user", question),), Sampling(max_tokens=96))
                text, usage = answer_once(engines[guess], request)
                if number:
                    spent[guess] += usage.stages.decode_s
                    texts[guess].append(text)
    for engine in engines.values():
        engine.close(5)
    changed = sum(plain != quick for plain, quick in zip(texts[False], texts[True], strict=True))
    return {
        "ratio": round(spent[False] / spent[True], 3),
        "changed": float(changed),
        "answers": float(len(texts[True])),
    }


SCRIPT = Script("e1", "rivals", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
