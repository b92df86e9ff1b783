from __future__ import annotations

from typing import Any

import pytest

from foveola.serve.options import ServeOptions


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("host", " "),
        ("port", -1),
        ("port", 65536),
        ("max_image_bytes", 0),
        ("max_requests", 0),
        ("read_timeout_s", 0.0),
        ("answer_timeout_s", float("nan")),
        ("drain_s", float("inf")),
        ("stall_s", -1.0),
        ("max_held_bytes", 1000),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_the_settings_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^`{name}` is .*; expected|^`{name}` is empty; expected"):
        ServeOptions(**{name: value})


def test_a_body_holds_a_picture_in_base64_with_line_breaks_and_its_prompt() -> None:
    options = ServeOptions()
    base64_with_breaks = options.max_image_bytes * 4 / 3 * 78 / 76
    assert options.max_body_bytes > base64_with_breaks + options.max_prompt_bytes


def test_a_visual_prompt_needs_a_folder_of_them() -> None:
    with pytest.raises(ValueError, match="`visual_prompt` names a prompt in `prompts_dir`; set that too."):
        ServeOptions(visual_prompt="plant-7")
