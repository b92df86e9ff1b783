from __future__ import annotations

import json
from typing import Any

import pytest

from foveola.exchange import Invalid
from foveola.lower.options import CompileOptions, parse_input_shape
from foveola.weights.formats import Format


def test_int4_is_a_mixture() -> None:
    options = CompileOptions.of_precision("int4", block=64)
    assert options.decoder == Format(4, 64, 4)
    assert options.head == options.embedding == Format(8, 64, 4)
    assert options.vision == Format(8, 64, expand=True)


def test_widening_at_load_is_for_all_parts() -> None:
    options = CompileOptions.of_precision("int4@load")
    assert options.decoder == Format(4, expand=True)
    assert options.head == options.vision == Format(8, expand=True)


def test_a_tower_too_large_to_be_widened_stays_narrow() -> None:
    options = CompileOptions.of_precision("int4")
    assert options.for_tower(2**28).vision == Format(8, expand=True)  # 1 GiB in fp32
    assert options.for_tower(2**28 + 1).vision == Format(8, accuracy_level=1)
    assert options.for_tower(2**28 + 1).wide_vision_mib is None


@pytest.mark.parametrize("asked", [{"precision": "int8@load"}, {"precision": "int4", "vision": Format(8, expand=True)}])
def test_a_tower_that_is_to_be_wide_is_wide_at_any_size(asked: dict[str, Any]) -> None:
    assert CompileOptions.of_precision(**asked).for_tower(2**40).vision == Format(8, expand=True)


def test_fp32_is_fp32_everywhere() -> None:
    options = CompileOptions.of_precision("fp32")
    assert {options.vision, options.decoder, options.head, options.embedding} == {"fp32"}


def test_a_part_that_is_named_differs_and_none_means_not_named() -> None:
    options = CompileOptions.of_precision("int4", vision="fp16", head=None)
    assert options.vision == "fp16"
    assert options.head == Format(8)


def test_the_lineage_can_hold_the_options() -> None:
    options = CompileOptions.of_precision("int4", image_px=(384, 384), overrides={"*.down_proj": Format(8)})
    assert json.loads(json.dumps(options.to_json()))["overrides"] == {"*.down_proj": "int8/32@4"}


@pytest.mark.parametrize(
    ("text", "size"), [("1,3,384,384", (384, 384)), ("480,640", (480, 640)), ("224x448", (224, 448))]
)
def test_the_shape_of_a_picture(text: str, size: tuple[int, int]) -> None:
    assert parse_input_shape(text) == size


@pytest.mark.parametrize("text", ["384", "1,3,384", "1,3,-1,384", "1,3,a,384", "", "1,3,384,384,1"])
def test_something_that_is_no_shape(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_input_shape(text)
    assert caught.value.message == (
        f"input shape is {text!r}; expected pictures,channels,height,width as in 1,3,384,384."
    )


@pytest.mark.parametrize("text", ["4,3,384,384", "1,1,384,384"])
def test_the_number_of_pictures_needs_no_setting(text: str) -> None:
    with pytest.raises(Invalid, match="expected it to begin with 1,3: one picture of three channels"):
        parse_input_shape(text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"image_px": (0, 384)}, "the picture is 0 x 384 pixels; expected sides of 1 to 8192."),
        ({"max_length": 8}, "max_length is 8; expected 16 to 131072 tokens."),
        (
            {"text_length": 5000},
            "seq_len is 5000; expected 1 to 4096, the length of a slot (raise --max-length with it).",
        ),
    ],
)
def test_values_out_of_range(fields: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        CompileOptions(**fields)  # type: ignore[arg-type]
    assert caught.value.message == message
