"""One rival, in its own environment, asked line by line what a prompt and some tokens take.

Started by ``e1_rivals.py`` with the Python of the rival's environment; imports nothing of this project. Every line on
stdin is one measurement: a JSON object with ``ids`` and ``tokens``. Every line on stdout is its answer: seconds of the
prefill (until the first token is there) and of ``tokens`` further ones, greedily, and the tokens where it tells them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Answer = tuple[float, float, list[int]]
Measure = Callable[[list[int], int], Answer]


def llama_cpp(model: str, threads: int) -> Measure:
    """Through the wheel of ``xllamacpp``, whose library is compiled for AVX2; the seconds are llama.cpp's own."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_parallel = 2048, 512, 512, 1
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(settings)

    def measure(ids: list[int], tokens: int) -> Answer:
        asked = {"prompt": ids, "n_predict": tokens + 1, "ignore_eos": True, "temperature": 0.0, "cache_prompt": False}
        answer = server.handle_completions(asked)
        spent = answer["timings"]
        if (spent["prompt_n"], spent["predicted_n"]) != (len(ids), tokens + 1):
            raise RuntimeError(f"llama.cpp took other numbers of tokens: {spent}")
        return spent["prompt_ms"] / 1e3, spent["predicted_ms"] / 1e3, []

    return measure


def openvino(model: str, threads: int) -> Measure:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = 1
    pipe = genai.LLMPipeline(model, "CPU", scheduler_config=scheduler, INFERENCE_NUM_THREADS=threads)

    def measure(ids: list[int], tokens: int) -> Answer:
        rows = np.array([ids], np.int64)
        inputs = genai.TokenizedInputs(ov.Tensor(rows), ov.Tensor(np.ones_like(rows)))
        settings = genai.GenerationConfig()
        settings.max_new_tokens, settings.ignore_eos, settings.do_sample = tokens + 1, True, False
        started = time.perf_counter()
        result = pipe.generate(inputs, settings)
        total = time.perf_counter() - started
        prefill = result.perf_metrics.get_ttft().mean / 1e3
        return prefill, total - prefill, [int(token) for token in result.tokens[0]]

    return measure


def onnxruntime_genai(model: str, threads: int) -> Measure:
    import numpy as np
    import onnxruntime_genai as genai

    config = genai.Config(model)
    config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}))
    loaded = genai.Model(config)

    def measure(ids: list[int], tokens: int) -> Answer:
        length = len(ids) + tokens + 1
        settings = genai.GeneratorParams(loaded)
        settings.set_search_options(max_length=length, min_length=length, batch_size=1, do_sample=False)
        generator = genai.Generator(loaded, settings)
        started = time.perf_counter()
        generator.append_tokens(np.array(ids, np.int32))
        generator.generate_next_token()
        first = time.perf_counter()
        for _ in range(tokens):
            generator.generate_next_token()
        seconds = time.perf_counter() - first
        return first - started, seconds, [int(token) for token in generator.get_sequence(0)[len(ids) :]]

    return measure


def transformers(model: str, threads: int) -> Measure:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()

    @torch.inference_mode()
    def measure(ids: list[int], tokens: int) -> Answer:
        started = time.perf_counter()
        out = loaded(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
        said = [int(out.logits[0, -1].argmax())]
        first = time.perf_counter()
        for _ in range(tokens):
            out = loaded(torch.tensor([said[-1:]]), past_key_values=out.past_key_values, use_cache=True)
            said.append(int(out.logits[0, -1].argmax()))
        return first - started, time.perf_counter() - first, said

    return measure


RIVALS = {
    "llama.cpp": llama_cpp,
    "openvino-genai": openvino,
    "onnxruntime-genai": onnxruntime_genai,
    "transformers": transformers,
}


def main() -> None:
    name, model, threads = sys.argv[1:]
    measure = RIVALS[name](model, int(threads))
    print(json.dumps({"ready": name}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        prefill, decode, said = measure(asked["ids"], asked["tokens"])
        print(json.dumps({"prefill_s": prefill, "decode_s": decode, "said": said}), flush=True)


if __name__ == "__main__":
    main()
