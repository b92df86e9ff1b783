from __future__ import annotations

import struct

import numpy as np
import pytest
from PIL import Image

from foveola.exchange import BadImage
from foveola.intake.formats.gif import read_gif
from foveola.intake.image import decode
from tests.intake.pictures import encoded

RED, GREEN, WHITE = [255, 0, 0], [0, 255, 0], [255, 255, 255]
LZW = b"\2\2\x4c\1\0"  # one pixel of colour 1, at 2 bits per code: clear, 1, end


def gif(
    screen: tuple[int, int], frame: tuple[int, int, int, int], *, before: bytes = b"", pixels: bytes = LZW
) -> bytes:
    head = b"GIF89a" + struct.pack("<HH", *screen) + b"\x81\0\0" + bytes([*RED, *GREEN, 0, 0, 255, 9, 9, 9])
    return head + before + b"," + struct.pack("<HHHH", *frame) + b"\0" + pixels + b";"


def control(transparent: int) -> bytes:
    return b"!\xf9\4\1\0\0" + bytes([transparent]) + b"\0"


def comment(data: bytes) -> bytes:
    return (
        b"!\xfe"
        + b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255))
        + b"\0"
    )


def refusal(data: bytes) -> str:
    with pytest.raises(BadImage) as caught:
        decode(data)
    assert caught.value.message.startswith("The GIF picture is damaged: ")
    return caught.value.message


def test_one_pixel() -> None:
    assert decode(gif((1, 1), (0, 0, 1, 1))).rgb.tolist() == [[GREEN]]


def test_the_transparent_colour_is_white() -> None:
    assert decode(gif((1, 1), (0, 0, 1, 1), before=control(1))).rgb.tolist() == [[WHITE]]
    assert decode(gif((1, 1), (0, 0, 1, 1), before=control(0))).rgb.tolist() == [[GREEN]]


@pytest.mark.parametrize("before", [b"", control(3)])
def test_around_a_small_frame_is_white_as_in_browsers(before: bytes) -> None:
    rgb = decode(gif((3, 3), (1, 2, 1, 1), before=before)).rgb
    expected = np.full((3, 3, 3), 255, np.uint8)
    expected[2, 1] = GREEN
    assert np.array_equal(rgb, expected)


def test_a_frame_beyond_its_screen_enlarges_it() -> None:
    picture = decode(gif((1, 1), (2, 0, 1, 1)))
    assert picture.original == (3, 1)
    assert picture.rgb.tolist() == [[WHITE, WHITE, GREEN]]


def test_comments_and_programs_are_left_out() -> None:
    clutter = comment(b"secret" * 100) + b"!\xff\x0bNETSCAPE2.0\3\1\0\0\0" + control(3)
    header = read_gif(gif((1, 1), (0, 0, 1, 1), before=clutter))
    assert header.body == gif((1, 1), (0, 0, 1, 1), before=control(3))


def test_of_an_animation_the_first_frame_is_shown() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "lime")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], loop=0)
    assert np.array_equal(decode(data).rgb, np.full((8, 8, 3), RED))


def test_a_flood_of_tiny_blocks_ends_early() -> None:
    flood = b"!\xfe" + b"\1x" * 200_000 + b"\0"
    assert "it has more than 100000 blocks before its picture" in refusal(gif((1, 1), (0, 0, 1, 1), before=flood))
    many = comment(b"x") * 60_000
    assert "it has more than 100000 blocks before its picture" in refusal(gif((1, 1), (0, 0, 1, 1), before=many))


@pytest.mark.parametrize("end", range(6, len(gif((1, 1), (0, 0, 1, 1))) - 2, 3))
def test_an_end_before_the_last_pixel(end: int) -> None:
    assert refusal(gif((1, 1), (0, 0, 1, 1), before=comment(b"xy"))[:end])


def test_an_empty_frame() -> None:
    assert "its first frame has 0 x 5 pixels" in refusal(gif((9, 9), (0, 0, 0, 5)))


def test_no_frame() -> None:
    assert "it holds no picture" in refusal(gif((9, 9), (0, 0, 1, 1))[:25] + b";")
