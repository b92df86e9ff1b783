from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from foveola.exchange import Invalid  # noqa: E402
from foveola.lower.nbits import QEmbedding, QLinear  # noqa: E402
from foveola.weights.formats import Format  # noqa: E402
from foveola.weights.packed import concatenated, pack  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("inner", [64, 100, 7])
@pytest.mark.parametrize("form", [Format(2, 32), Format(4, 32), Format(4, 16), Format(8, 32), Format(8, 128)])
def test_rounding_is_off_by_half_a_step_at_most(form: Format, inner: int) -> None:
    weight = torch.randn(24, inner)
    packed = pack(weight, form)
    back = packed.dequantised()
    assert back.shape == weight.shape
    step = packed.scales.repeat_interleave(form.block, dim=1)[:, :inner]
    # 0.5 for the weight, 0.5 for the zero point: a block's range may hang over by as much as its zero was moved.
    assert ((back - weight).abs() <= 1.001 * step).all()
    relative = (back - weight).norm() / weight.norm()
    assert relative < {2: 0.6, 4: 0.12, 8: 0.008}[form.bits]


def test_rounding_twice_changes_nothing() -> None:
    once = pack(torch.randn(8, 96), Format(4))
    twice = pack(once.dequantised(), Format(4))
    assert torch.allclose(once.dequantised(), twice.dequantised(), atol=1e-6)


def test_scales_survive_being_stored_in_16_bits() -> None:
    scales = pack(torch.randn(8, 96) * 1e-3, Format(8)).scales
    assert torch.equal(scales.half().float(), scales)


@pytest.mark.parametrize("weight", [torch.zeros(4, 32), torch.full((4, 32), 0.25), torch.full((4, 32), -3.0)])
def test_blocks_of_one_value_stay_themselves(weight: object) -> None:
    back = pack(weight, Format(8)).dequantised()
    assert torch.allclose(back, weight, rtol=1e-3)


def test_two_weights_share_a_byte_low_half_first() -> None:
    weight = torch.zeros(1, 16)
    weight[0, :3] = torch.tensor([0.0, 15.0, 5.0])
    packed = pack(weight, Format(4, 16))
    assert packed.values.shape == (1, 1, 8)
    assert packed.values[0, 0, :2].tolist() == [0 | 15 << 4, 5]


def test_four_weights_of_two_bits_share_a_byte_lowest_first() -> None:
    weight = torch.zeros(1, 16)
    weight[0, :5] = torch.tensor([0.0, 3.0, 1.0, 2.0, 3.0])
    packed = pack(weight, Format(2, 16))
    assert packed.values[0, 0].tolist() == [0 | 3 << 2 | 1 << 4 | 2 << 6, 3, 0, 0]
    assert torch.equal(packed.dequantised(), weight)
    with pytest.raises(Invalid, match="an embedding cannot be stored in 2 bits; choose int4 or int8"):
        QEmbedding(packed)


def test_bytes_are_counted_as_a_file_holds_them() -> None:
    packed = pack(torch.randn(10, 100), Format(4, 32))
    assert packed.nbytes == 10 * 4 * 16 + 2 * 10 * 4 + 10 * 2


def test_rows_of_several_matrices_below_one_another() -> None:
    parts = [pack(torch.randn(n, 48), Format(4)) for n in (3, 5)]
    joined = concatenated(parts)
    assert joined.outer == 8
    assert torch.equal(joined.dequantised(), torch.cat([part.dequantised() for part in parts]))


def test_a_layer_computes_with_what_it_stores() -> None:
    weight, bias = torch.randn(6, 40), torch.randn(6)
    layer = QLinear(pack(weight, Format(8)), bias)
    x = torch.randn(2, 3, 40)
    assert torch.allclose(layer(x), torch.nn.functional.linear(x, layer.packed().dequantised(), bias))


def test_an_embedding_reads_its_rows() -> None:
    packed = pack(torch.randn(20, 64), Format(4))
    ids = torch.tensor([[3, 19], [0, 3]])
    assert torch.equal(QEmbedding(packed)(ids), packed.dequantised()[ids])


def test_an_embedding_is_as_wide_as_whole_blocks() -> None:
    with pytest.raises(Invalid) as caught:
        QEmbedding(pack(torch.randn(20, 48), Format(8, 32)))
    assert caught.value.message == (
        "an embedding 48 wide cannot be stored in blocks of 32; choose a block that divides its width."
    )
