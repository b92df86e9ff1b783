from __future__ import annotations

from typing import Any

import pytest

from foveola.exchange import Damaged
from foveola.intake.sizes import VisionConfig
from tests.intake.models import vision


def test_everything_is_taken_over() -> None:
    config = VisionConfig.from_model(vision())
    assert config.factor == 28
    assert config.image_mean == (0.48145466, 0.4578275, 0.40821073)
    assert {key: getattr(config, key) for key in ("min_pixels", "max_pixels", "max_patches", "resample")} == {
        "min_pixels": 3136,
        "max_pixels": 200704,
        "max_patches": 4096,
        "resample": "bicubic",
    }


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"patch_size": None}, "vision.patch_size is a whole number of at least 1"),
        ({"merge_size": 0}, "vision.merge_size is a whole number of at least 1"),
        ({"max_pixels": 1.5}, "vision.max_pixels is a whole number of at least 1"),
        ({"max_patches": True}, "vision.max_patches is a whole number of at least 1"),
        ({"image_mean": [0.5]}, "vision.image_mean is a list of three numbers"),
        ({"image_std": [1, 2, float("nan")]}, "vision.image_std is a list of three numbers"),
        ({"image_std": [1, 0, 1]}, "vision.image_std divides the pixels and must not hold 0"),
        ({"resample": "area"}, "vision.resample is one of nearest, bilinear, bicubic, lanczos"),
        ({"min_pixels": 10**6}, "vision.min_pixels is greater than vision.max_pixels"),
    ],
)
def test_a_field_that_is_wrong_is_named(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(Damaged) as caught:
        VisionConfig.from_model(vision(**changes))
    assert caught.value.message.startswith("model.json: ")
    assert text in caught.value.message
