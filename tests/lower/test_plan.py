"""The choice of storages from a table, and the table itself where it can be told without looking at a clock."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from foveola.exchange import Invalid
from foveola.lower.plan import MIB, Workload, choose, costs
from foveola.lower.plan_kernels import CANDIDATES, DYNAMIC_INT8, Shape, Timing, measure_kernels, stored_bytes

BIG, HEAD = Shape(1024, 1024), Shape(4096, 1024)
MATRICES = {"vision": Counter({BIG: 2}), "decoder": Counter({BIG: 8}), "head": Counter({HEAD: 1})}
WORK = Workload(patches=256, prompt=100, answer=10)


def timed(seconds: dict[str, tuple[float, float]], threads: int = 1, factor: float = 1.0) -> list[Timing]:
    """``seconds``: storage -> for one row, and for many; for both shapes and all numbers of rows."""
    return [
        Timing(shape, storage, rows, threads, factor * (one if rows == 1 else many), stored_bytes(shape, storage))
        for storage, (one, many) in seconds.items()
        for shape in (BIG, HEAD)
        for rows in WORK.rows
    ]


TABLE = timed(
    {"fp32": (4e-3, 10e-3), "int4/32@4": (1e-3, 30e-3), "int8/128@4": (2e-3, 20e-3), DYNAMIC_INT8: (1e-4, 1e-4)}
)


def test_every_part_gets_what_is_quickest_for_its_own_rows() -> None:
    plan = choose(MATRICES, TABLE, WORK)
    assert plan.storages == {"vision": "fp32", "decoder": "int4/32@4", "head": "int4/32@4"}
    decoder = 8 * 30e-3 + 10 * 8 * 1e-3
    assert plan.seconds == pytest.approx(2 * 10e-3 + decoder + 1e-3 + 10 * 1e-3)
    long_answers = choose(MATRICES, TABLE, Workload(256, 100, 2))
    assert long_answers.storages["decoder"] == "fp32"


def test_memory_bounds_the_choice() -> None:
    free = choose(MATRICES, TABLE, WORK)
    bound = free.bytes / MIB - 1
    tight = choose(MATRICES, TABLE, WORK, memory_mib=bound)
    assert tight.bytes <= bound * MIB
    assert tight.storages["vision"] != "fp32"
    with pytest.raises(Invalid, match=r"memory is 1 MiB; the weights of this model need at least \d+\.\d MiB here"):
        choose(MATRICES, TABLE, WORK, memory_mib=1)


def test_a_floor_of_bits_and_what_cannot_be_compiled() -> None:
    plan = choose(MATRICES, TABLE, WORK, least_bits=8)
    assert plan.storages["decoder"] in ("int8/128@4", "fp32")
    assert DYNAMIC_INT8 not in plan.storages.values()  # the quickest here, and only told of
    assert any(cost.storage == DYNAMIC_INT8 for cost in plan.table["decoder"])


def test_what_two_storages_for_the_decoder_would_bring_and_cost() -> None:
    both = choose(MATRICES, TABLE, WORK).both
    assert (both["prefill"], both["decode"], both["single"]) == ("fp32", "int4/32@4", "int4/32@4")
    assert both["saved_ms_per_request"] == pytest.approx(1e3 * 8 * 20e-3)
    assert both["extra_mib"] == pytest.approx(8 * 4 * 1024 * 1024 / MIB)
    same = choose(MATRICES, timed({"fp32": (1e-3, 1e-3), "int8/32@4": (2e-3, 2e-3)}), WORK).both
    assert (same["saved_ms_per_request"], same["extra_mib"]) == (0, 0)


def test_more_threads_are_taken_where_they_help() -> None:
    table = [*TABLE, *timed({"int4/32@4": (1e-3, 30e-3), "fp32": (4e-3, 10e-3)}, threads=2, factor=0.6)]
    assert choose(MATRICES, table, WORK).threads == 2
    slower = [*TABLE, *timed({"int4/32@4": (1e-3, 30e-3), "fp32": (4e-3, 10e-3)}, threads=2, factor=1.6)]
    assert choose(MATRICES, slower, WORK).threads == 1


def test_a_storage_that_was_not_measured_for_every_shape_is_no_candidate() -> None:
    some = [timing for timing in TABLE if timing.storage != "fp32" or timing.shape != HEAD]
    found = costs(MATRICES, some, WORK, 1)
    assert all(cost.storage != "fp32" for cost in found["head"])
    assert any(cost.storage == "fp32" for cost in found["decoder"])


def test_bytes_of_a_matrix_in_memory() -> None:
    assert stored_bytes(BIG, "fp32") == stored_bytes(BIG, "int4/32@load") == 4 * 1024 * 1024
    assert stored_bytes(BIG, "int4/32@4") == 1024 * 1024 // 2 + 5 * 1024 * 32
    assert stored_bytes(BIG, "int8/128@4") == 1024 * 1024 + 5 * 1024 * 8


def test_every_candidate_has_a_kernel_here() -> None:
    table = measure_kernels([Shape(64, 96)], [1, 3], [1])
    assert [timing.storage for timing in table[::2]] == list(CANDIDATES)
    assert all(timing.seconds > 0 for timing in table)


@pytest.mark.torch
def test_the_shapes_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    from foveola.artifact import Checkpoint
    from foveola.lower.plan_command import matrices_of
    from tests.checkpoints import random_checkpoint

    found = matrices_of(Checkpoint.open(random_checkpoint(tmp_path / "checkpoint")))
    assert found["head"] == Counter({Shape(1000, 64): 1})
    assert found["decoder"] == Counter({Shape(128, 64): 2, Shape(64, 64): 2, Shape(160, 64): 4, Shape(64, 160): 2})
    assert sum(found["vision"].values()) == 2 * 4 + 2


@pytest.mark.torch
def test_a_plan_of_runs_is_written_into_a_bundle_and_read_by_the_engine(random_bundle: Path, tmp_path: Path) -> None:
    from foveola.artifact import Bundle, Finding
    from foveola.lower.plan_runs import MOST, measure_runs, with_plan

    bundle = Bundle.open(random_bundle)
    seconds = measure_runs(bundle, threads=1, rounds=3)
    assert len(seconds) == MOST
    assert all(value > 0 for value in seconds)
    planned = with_plan(
        bundle, tmp_path / "planned", {"run_seconds": seconds}, Finding("lower.plan", "x"), replace=False
    )
    assert Bundle.open(planned.path).model["plan"]["run_seconds"] == seconds
    assert planned.lineage[-1].step == "lower.plan"
    assert planned.model_hash != bundle.model_hash
    assert {name: digest for name, digest in planned.files.items() if name != "model.json"} == {
        name: digest for name, digest in bundle.files.items() if name != "model.json"
    }


@pytest.mark.torch
def test_the_embedding_has_blocks_that_fit_its_width() -> None:
    from foveola.lower.plan_command import embedding_for
    from foveola.weights.formats import Format, parse_storage

    head = parse_storage("int8/128@4")
    assert embedding_for(head, 1536) == Format(8, 128)
    assert embedding_for(head, 576) == Format(8, 64)  # SmolLM2
    assert embedding_for(parse_storage("int4/32@4"), 576) == Format(8, 32)
    assert embedding_for(head, 100) == "fp16"
    assert embedding_for("fp32", 576) == "fp16"


@pytest.mark.slow
@pytest.mark.torch
def test_from_a_checkpoint_to_a_planned_bundle_that_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from foveola.artifact import Bundle
    from foveola.cli import main
    from foveola.engine.engine import Engine
    from foveola.engine.once import answer_once
    from foveola.engine.options import EngineOptions
    from foveola.exchange import Request, Sampling, Turn
    from tests.checkpoints import random_checkpoint

    checkpoint, out = random_checkpoint(tmp_path / "checkpoint"), tmp_path / "bundle"
    small = ["--threads", "1", "--prompt", "16", "--answer", "4", "--patches", "16", "--max-length", "64"]
    assert main(["plan", "--model", str(checkpoint), "--out", str(out), "--json", *small]) == 0
    told = json.loads(capsys.readouterr().out)
    bundle = Bundle.open(out)
    assert bundle.lineage[-1].step == "lower.plan"
    assert bundle.model["plan"]["storages"] == told["storages"]
    assert bundle.model["plan"]["run_seconds"] == told["run_seconds"]
    assert set(told["both_phases"]) >= {"prefill", "decode", "saved_ms_per_request", "extra_mib"}
    engine = Engine.open(bundle, EngineOptions(threads=1, slots=1))
    assert engine._costs.seconds == (tuple(told["run_seconds"]) if told["guess"] else ())
    assert answer_once(engine, Request("r", (Turn("user", "Hi"),), Sampling(max_tokens=4)))[1].completion_tokens <= 4
    engine.close(5)
