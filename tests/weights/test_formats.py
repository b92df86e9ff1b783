from __future__ import annotations

import pytest

from foveola.exchange import Invalid
from foveola.weights.formats import Format, parse_storage


@pytest.mark.parametrize(
    ("text", "storage"),
    [
        ("fp32", "fp32"),
        ("fp16", "fp16"),
        ("int4", Format(4, 64, 1)),
        ("int8/128", Format(8, 128, 1)),
        ("int4@0", Format(4, 64, 0)),
        ("int4/32@4", Format(4, 32, 4)),
        ("int8@load", Format(8, 64, expand=True)),
        ("int4s", Format(4, 64, 1, symmetric=True)),
        ("int4s/32@load", Format(4, 32, expand=True, symmetric=True)),
    ],
)
def test_what_is_written_down_is_read_with_the_defaults_filled_in(text: str, storage: object) -> None:
    assert parse_storage(text, block=64, accuracy_level=1) == storage


@pytest.mark.parametrize(
    "storage", [Format(4), Format(8, 128, 1), Format(8, 16, expand=True), Format(4, symmetric=True)]
)
def test_a_format_reads_itself(storage: Format) -> None:
    assert parse_storage(str(storage)) == storage


@pytest.mark.parametrize("text", ["bf16", "int", "4", "int4/", "int4@high", "INT4", "", "int4/32@4 "])
def test_anything_else_is_refused_with_the_name_of_the_setting(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_storage(text, field="vision")
    assert caught.value.field == "vision"
    assert caught.value.message == (
        f"vision is {text!r}; expected fp32, fp16, int8, int4 or int2, the last three also with block size and "
        "accuracy level, as in int4/64@1, or @load for widening when the graph is loaded; int4s rounds around 0."
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int3", "bits is 3; the CPU kernels know 2, 4, 8. Choose one of these."),
        ("int4/48", "block is 48; the CPU kernels know 16, 32, 64, 128, 256. Choose one of these."),
        ("int4/32@2", "accuracy_level is 2; the CPU kernels know 0, 1, 4. Choose one of these."),
    ],
)
def test_numbers_without_a_kernel_are_refused(text: str, message: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_storage(text)
    assert caught.value.message == message
