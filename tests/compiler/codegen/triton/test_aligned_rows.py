"""Rows that start off groups of 16 bytes: walked from their first line of memory on. And rows that start at
groups but end within one: read up to its end, where the buffer goes on for so long."""

from __future__ import annotations

import pytest
import torch

from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton.test_nests import coarsest, near
from tests.compiler.codegen.triton_running import generated, run_interpreted, small_chip
from tests.compiler.lower.harness import as_list
from tests.golden.programs import edgy
from tests.golden.triton_programs import PHILOX, SHORT
from tests.nightly import few, one_in

WALKED = SHORT | {"LONGEST_ROW": 64, "WALK_BLOCK": 64}
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def source_of(function, *inputs: torch.Tensor, **limits: int) -> str:
    """The kernels' text, after their numbers have been compared with eager's for every config: with each
    access checked, so nothing outside of the tensors' storage is read."""
    graph = aten_of(function, *inputs)
    with small_chip(**(WALKED | limits)):
        _, source = generated(graph)
    exact = [item.double() if item.is_floating_point() else item for item in inputs]
    for candidate in range(max(len(launch.configs) for launch in source.launches)):
        got = run_interpreted(source, graph, inputs, candidate=candidate)
        eager = as_list(function(*inputs))
        if inputs[0].dtype == torch.float64:  # there is nothing more exact to compare with
            torch.testing.assert_close(got, eager, rtol=1e-12, atol=1e-12, equal_nan=True)
        else:
            near(got, eager, as_list(function(*exact)), coarsest(graph), source.source)
    return source.source


def walks_lines(text: str, dtype: torch.dtype) -> bool:
    """Whether rows are walked from a line of memory on: of 128 bytes of the type."""
    line = 128 // dtype.itemsize
    return f"+ {line - 1}) // {line} * {line}\n" in text


def drawn(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return edgy(rows, width, dtype=dtype)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-100, 100, (rows, width), generator=generator).to(dtype)


def softmax(x):
    return torch.softmax(x, -1)


def statistics(x):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) * torch.rsqrt(x.var(-1, keepdim=True) + 1), x.amax(-1)


def spread(x):
    return x - x.amin(-1, keepdim=True), x.sum(-1), x.clamp(min=0).amax(-1)


@few(1)
@pytest.mark.parametrize(("dtype", "width"), one_in(3, FLOATS, [1025, 1027, 1087, 1151, 1279]))
def test_softmax(dtype, width):
    """Of other widths, as many points are left after the whole blocks as a block has, or more, or few."""
    assert walks_lines(source_of(softmax, drawn(9, width, dtype)), dtype)


@pytest.mark.nightly
@pytest.mark.parametrize("function", [statistics, spread])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_other_reductions(dtype, function):
    assert walks_lines(source_of(function, drawn(9, 1031, dtype) / 3), dtype)


@pytest.mark.nightly
def test_integers():
    assert walks_lines(source_of(spread, drawn(18, 1031, torch.int8)), torch.int8)


@pytest.mark.nightly
def test_even_but_not_by_groups():
    """Rows of 4-byte alignment, as of BERT's vocabulary of 30522."""
    assert walks_lines(source_of(softmax, drawn(9, 1034, torch.bfloat16)), torch.bfloat16)


@pytest.mark.nightly
def test_types_of_two_sizes():
    """Both sides lie at whole lines where the smaller type does."""
    text = source_of(lambda x: torch.log_softmax(x.float(), -1), drawn(9, 1027, torch.bfloat16))
    assert walks_lines(text, torch.bfloat16)


@pytest.mark.nightly
def test_columns_and_positions():
    """What depends on the column, and what lies otherwise in memory."""

    def function(x, weight, wide):
        place = torch.arange(x.shape[1])
        y = torch.softmax(torch.where(place > 500, x * weight, x) + wide[:, 3:1030], -1)
        return y, x.amax(-1) + weight[5]

    inputs = drawn(7, 1027, torch.bfloat16), drawn(1, 1027, torch.bfloat16)[0], drawn(7, 1032, torch.bfloat16)
    assert walks_lines(source_of(function, *inputs), torch.bfloat16)


def test_in_place():
    def function(x):
        return x.copy_(torch.softmax(x, -1))

    x = drawn(9, 1027, torch.bfloat16)
    graph = aten_of(function, x.clone())
    with small_chip(**WALKED):
        _, source = generated(graph)
    assert walks_lines(source.source, torch.bfloat16)
    given = x.clone()
    run_interpreted(source, graph, [given])
    torch.testing.assert_close(given, torch.softmax(x, -1), equal_nan=True)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_end_of_storage(dtype):
    """A view one element off alignment, whose last row ends where the storage does."""
    storage = drawn(1, 9 * 1027 + 1, dtype)[0]
    x = storage[1:].view(9, 1027)
    assert x.storage_offset() + x.numel() == storage.numel()
    assert walks_lines(source_of(spread, x), dtype)


@pytest.mark.nightly
def test_three_dimensions():
    x = drawn(12, 1027, torch.bfloat16).view(3, 4, 1027).transpose(0, 1)
    assert walks_lines(source_of(softmax, x), torch.bfloat16)


def test_left_alone_where_a_row_has_few_lines():
    """One row, off alignment, of fewer points than two lines have."""
    x = drawn(1, 103, torch.bfloat16)
    text = source_of(lambda x: x[:, 3:].amax(-1), x, LONGEST_ROW=8, WALK_BLOCK=4)
    assert "for start in" in text
    assert not walks_lines(text, torch.bfloat16)


def test_one_row_off_alignment():
    x = drawn(1, 1027, torch.bfloat16)
    assert walks_lines(source_of(lambda x: x[:, 3:].amax(-1), x), torch.bfloat16)


@pytest.mark.nightly
@pytest.mark.parametrize("width", [1024, 1032])
def test_left_alone_where_rows_start_at_groups(width):
    assert not walks_lines(source_of(softmax, drawn(9, width, torch.bfloat16)), torch.bfloat16)


@pytest.mark.nightly
def test_left_alone_where_the_order_counts():
    """The first of equal maxima is asked for."""
    x = drawn(9, 1027, torch.bfloat16)
    assert not walks_lines(source_of(lambda x: (x.argmax(-1), x + 1), x), torch.bfloat16)


def test_left_alone_where_random_numbers_are_drawn():
    """Four neighbours share a block of them: blocks start at multiples of four."""
    x = drawn(5, 1028, torch.bfloat16)

    def dropped(x):
        return torch.softmax(torch.native_dropout(x, 0.5, True)[0], -1)

    with small_chip(**WALKED):
        _, source = generated(aten_of(dropped, x), PHILOX)
    assert "philox" in source.source
    assert not walks_lines(source.source, torch.bfloat16)
    assert walks_lines(source_of(softmax, x), torch.bfloat16)


@few(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
def test_whole_groups(dtype):
    """Padding that belongs to the buffer is read; its values go nowhere."""
    group = 16 // dtype.itemsize

    def function(x):
        return x[:, : width - 1] + 1

    width = 4096 + 2 * group
    x = drawn(3, width, dtype)
    x[:, -1] = 100  # would be seen
    text = source_of(function, x)
    assert f"< {width})" in text
    assert f"< {width - 1}\n" in text


def test_whole_groups_in_reductions():
    x = drawn(9, 208, torch.bfloat16)
    x[:, 197:] = float("nan")
    for limits in ({"LONGEST_ROW": 16_384}, {"LONGEST_ROW": 64}):
        text = source_of(lambda x: torch.softmax(x[:, :197], -1), x, **limits)
        assert "< 200)" in text


def test_no_group_beyond_the_buffer():
    """An input's rows are padded, the last one need not be: it ends where its storage does."""
    storage = drawn(1, 2 * 4104 + 4099, torch.bfloat16)[0]
    x = storage.as_strided((3, 4099), (4104, 1))
    text = source_of(lambda x: x * 2, x)
    assert "< 4104)" not in text


@pytest.mark.nightly
def test_slabs():
    """Few rows, each shared out among programs: a slab lies before, across or after the last whole block."""

    def function(x):
        return x.sum(-1), x.var(-1), x.amax(-1)

    for width in (1031, 2111, 4103):
        text = source_of(function, drawn(2, width, torch.bfloat16) / 3, multiprocessors=8)
        assert "slab * chunk" in text
        assert walks_lines(text, torch.bfloat16)


@pytest.mark.nightly
def test_rows_walked_together():
    def function(x):
        return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + 1)

    text = source_of(function, drawn(3, 9221, torch.bfloat16), multiprocessors=8, TOGETHER=256)
    assert "wait_for_all" in text
    assert walks_lines(text, torch.bfloat16)
