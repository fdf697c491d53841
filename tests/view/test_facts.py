"""The verdict and the figures at the head of every view."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest

from nbcompile import view
from nbcompile.record.compilation import Accuracy, Cell, Compilation, Graph, LineFate, Measurement, Node, Span
from nbcompile.record.measured import difference
from nbcompile.record.provenance import Links
from nbcompile.view.facts import facts as fact
from nbcompile.view.facts.cell_lines import cell_lines, line_shares
from tests.view.fixtures import MB, samples, transformer, with_break


def timed(eager: float, ours: float, **own: object) -> Compilation:
    return transformer(
        measurements=(
            Measurement("forward", "eager", steady=samples(1, eager)),
            Measurement("forward", "nbcompile", steady=samples(2, ours), **own),  # type: ignore[arg-type]
        )
    )


@pytest.mark.parametrize(
    ("eager", "ours", "tone", "text"),
    [
        (2.3e-3, 1e-3, "good", "2.3× faster than eager"),
        (1.04e-3, 1e-3, "good", "1.03× faster than eager"),
        (1e-3, 1e-3, "even", "as fast as eager"),
        (0.8e-3, 1e-3, "bad", "0.79× — slower than eager"),
    ],
)
def test_verdict_of_times(eager: float, ours: float, tone: str, text: str) -> None:
    found = fact.verdict(timed(eager, ours))
    assert found.tone == tone
    assert found.text.startswith(text)


def spread_out(median: float, wide: float, count: int = 200) -> tuple[float, ...]:
    """Samples of this median, of which the middle 80% reach from ``median / wide`` to ``median * wide``."""
    draw = random.Random(count)
    return tuple(median * wide ** (draw.gauss(0, 1) / 1.28) for _ in range(count))


WIDE_APART = spread_out(1.69e-3, 6.0), spread_out(7.32e-3, 6.0)
"""As two contestants on a busy machine: the spreads overlap, the medians of 200 turns are 4.3 times apart."""


@pytest.mark.parametrize(
    ("ours", "eager", "said"),
    [
        (*WIDE_APART, "faster"),
        (*WIDE_APART[::-1], "slower"),
        (spread_out(1e-3, 6.0), spread_out(1e-3, 6.0), "same"),
        (spread_out(1e-3, 6.0), spread_out(1.08e-3, 6.0, 199), "unclear"),
        (spread_out(1e-3, 1.01), spread_out(1.08e-3, 1.01), "faster"),
        ((1e-3,) * 3, (9e-3,) * 200, "unclear"),
        ((1e-3, 1.1e-3, 1.2e-3, 1.3e-3), (2e-3, 2.1e-3, 2.2e-3, 2.3e-3), "faster"),
        ((1e-3, 1.1e-3, 1.2e-3, 2.3e-3), (2e-3, 2.1e-3, 2.2e-3, 2.3e-3), "unclear"),
        ((), (1e-3,) * 9, "unclear"),
    ],
)
def test_what_is_known_of_the_medians_decides(
    ours: tuple[float, ...], eager: tuple[float, ...], said: str
) -> None:
    found = [
        Measurement("f", name, steady=steady) for name, steady in (("nbcompile", ours), ("eager", eager))
    ]
    assert difference(*found) == said


def test_a_median_lies_in_its_interval_as_often_as_it_says() -> None:
    """Of 99% intervals of medians of skewed samples, by count: few must miss the true one."""
    draw = random.Random(3)
    missed = 0
    for _ in range(2000):
        steady = tuple(draw.expovariate(1.0) for _ in range(draw.choice((8, 25, 60, 200))))
        interval = Measurement("f", "eager", steady=steady).median_interval
        assert interval is not None
        missed += not interval[0] <= math.log(2) <= interval[1]
    assert missed <= 30


def test_few_samples_decide_nothing_and_it_is_said() -> None:
    record = transformer(
        measurements=(
            Measurement("forward", "eager", steady=(4e-3,) * 3),
            Measurement("forward", "nbcompile", steady=(1e-3,) * 3),
        )
    )
    assert fact.verdict(record).text == "no clear difference from eager (4.0×, of 3 samples only)"
    wide = [
        Measurement("f", name, steady=s) for name, s in zip(("nbcompile", "eager"), WIDE_APART, strict=True)
    ]
    found = fact.verdict(transformer(measurements=tuple(wide)))
    assert found.tone == "good" and "faster than eager" in found.text


def test_a_time_of_code_that_did_not_run_is_no_verdict() -> None:
    record = timed(2e-3, 1e-3, ran_compiled=False, reason="recompile limit reached")
    assert fact.verdict(record).text == "ran eager: recompile limit reached"
    said = timed(2e-3, 1e-3, ran_compiled=False, reason="ran eager: recompile limit reached")
    assert fact.verdict(said).text == "ran eager: recompile limit reached"


def test_wrong_results_come_before_speed() -> None:
    record = transformer(
        accuracy=(Accuracy("nbcompile", "loss", 0.3, 1e-7, agrees=False, reason="off by 30%"),)
    )
    assert fact.verdict(record).text == "differs from eager in loss"
    assert fact.error_line(record) == "results differ from eager"


def test_other_contestants_results_do_not_count_against_ours() -> None:
    record = transformer(accuracy=(Accuracy("inductor", "loss", 0.3, 1e-7, agrees=False),))
    assert fact.verdict(record).tone == "good"


def test_nothing_captured_says_why() -> None:
    assert fact.verdict(Compilation(id="x")).text == "ran eager: nothing was captured"
    assert fact.verdict(Compilation(id="x", notes=("no C compiler",))).text == "ran eager: no C compiler"


def test_break_even_counts_calls() -> None:
    slow, fast = (
        Measurement("f", name, steady=(time,) * 5) for name, time in (("eager", 3e-3), ("nbcompile", 1e-3))
    )
    assert fact.break_even(0.2, fast, slow) == 100
    assert fact.break_even(0.2, slow, fast) is None
    assert fact.break_even(None, fast, slow) is None
    assert fact.break_even(0.2, dataclasses.replace(fast, ran_compiled=False), slow) is None


def test_error_is_relative_to_eagers_own() -> None:
    record = transformer(
        accuracy=(Accuracy("nbcompile", "y", 1.6e-7, 2e-7), Accuracy("nbcompile", "z", 0.0, 2e-7))
    )
    assert fact.error_line(record) == "error 0.8× eager's"
    exact = transformer(accuracy=(Accuracy("nbcompile", "y", 0.0, 0.0),))
    assert fact.error_line(exact) == "exact, as eager"
    chance = transformer(accuracy=(Accuracy("nbcompile", "y", 9e-8, 1e-9, agrees=True),))
    assert fact.error_line(chance) == "error within rounding" and fact.verdict(chance).tone == "good"


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([Accuracy("nbcompile", "y", math.inf, math.inf, 0.0)], "same bits as eager"),
        ([Accuracy("nbcompile", "y", math.inf, math.inf, 1e-3)], "within 1.0e-03 of eager"),
        ([Accuracy("nbcompile", "y", math.inf, math.inf, math.inf)], "agrees with eager"),
        ([Accuracy("nbcompile", "y", math.nan, math.nan), Accuracy("nbcompile", "z", 1.6e-7, 2e-7)],
         "error 0.8× eager's"),
    ],
)  # fmt: skip
def test_of_an_error_that_is_no_number_something_else_is_told(entries: list[Accuracy], told: str) -> None:
    assert fact.error_line(transformer(accuracy=tuple(entries))) == told


def test_eager_is_never_said_to_have_run_eager() -> None:
    record = transformer(
        measurements=(
            Measurement("cell", "eager", first=3e-3, steady=(2e-3,) * 20, ran_compiled=False),
            Measurement("cell", "inductor", ran_compiled=False, reason="recompile limit reached"),
            Measurement("cell", "nbcompile", cold=0.2, steady=(1e-3,) * 20),
        )
    )
    text = view.to_text(record)
    row = next(line for line in text.splitlines() if line.startswith("  eager"))
    assert row.split() == ["eager", *"2 ms 2 ms – 2 ms 1.00× – – 3 ms –".split()]
    page = view.to_html(record)
    assert text.count("ran eager") == page.count("ran eager") - page.count("ran eager: recompile") + 1 == 1
    assert "2.0× faster than eager" in text


def test_counts_and_bytes() -> None:
    record = transformer()
    found = fact.facts(record, Links(record))
    assert "12 ops → 12 loops → 4 kernels + 5 library calls" in found.lines
    assert found.unfused > found.moved > 0
    assert sum(call.share for call in found.calls) == pytest.approx(1)
    own = [kernel.bytes_read + kernel.bytes_written for kernel in record.kernels]
    assert [call.bytes for call in found.calls if call.fate == "fused"] == own
    assert f"{found.moved / MB:.1f} MB moved" in " ".join(found.lines)


def test_line_shares_add_up_and_follow_the_loops() -> None:
    record = transformer()
    links = Links(record)
    calls = fact.calls_of(record, links)
    shares = line_shares(record, calls, links)
    assert sum(shares.values()) == pytest.approx(1)
    by_label = {call.label: call for call in calls}
    assert shares[5] == pytest.approx(by_label["k1"].share), "k1 serves line 5 alone"


def test_labels_name_the_graph_only_where_there_are_several() -> None:
    record, broken = transformer(), with_break()
    assert "k0" in {call.label for call in fact.calls_of(record, Links(record))}
    assert {"g0.k0", "g1.k0"} <= {call.label for call in fact.calls_of(broken, Links(broken))}


@pytest.mark.parametrize(
    ("op", "short"),
    [
        ("aten.addmm.default", "addmm"),
        ("aten.add.Tensor", "add"),
        ("torch.nn.functional.gelu", "gelu"),
        ("operator.add", "add"),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", "sdpa"),
        ("relu", "relu"),
        ("", "?"),
        ("aten._softmax.default", "softmax"),
    ],
)
def test_short_op(op: str, short: str) -> None:
    assert fact.short_op(op) == short


def test_a_line_of_a_compiler_that_tells_no_lines_is_captured() -> None:
    """Not "nothing of it is computed", beside a library call that computes it."""
    record = opaque_graph()
    rows = cell_lines(record, fact.calls_of(record, Links(record)), Links(record))
    assert [(row.fate, row.why, [chip.label for chip in row.chips]) for row in rows[1:]] == [
        ("captured", "", ["add"])
    ]
    assert "· captured;" in view.to_text(record)


def opaque_graph() -> Compilation:
    """One line, its graph handed whole to another compiler."""
    x = Node("g0.fx.n0", "x", "placeholder", "input")
    added = Node("g0.fx.n1", "y", "operator.add", "compute", inputs=("g0.fx.n0",), spans=(Span(2, 0, 2, 9),))
    call = Node("g0.fw.e0", "call", "tvm", "library")
    return Compilation(
        id="c",
        backend="tvm",
        cell=Cell(source="%%compile --backend tvm\ny = x + 1", execution_count=1),
        graphs=(
            Graph("g0.fx", "fx", "captured", (x, added), ("g0.fx.n1",)),
            Graph("g0.fw.fused", "fused", "called", (call,), ("g0.fw.e0",)),
        ),
        lines=(LineFate(2, 2, "compiled"),),
    )


def test_a_contestant_whose_results_differ_is_marked_beside_its_time() -> None:
    """In words, where there is no colour: its time is of something else."""
    record = transformer(
        measurements=(
            Measurement("cell", "eager", steady=(2e-3,) * 20, ran_compiled=False),
            Measurement("cell", "nbcompile", cold=0.2, steady=(1e-3,) * 20),
            Measurement("cell", "wrong", cold=0.2, steady=(0.5e-3,) * 20),
            Measurement("cell", "broken", ran_compiled=False, reason="raised ValueError: no"),
        ),
        accuracy=(
            Accuracy("nbcompile", "y", 1e-7, 1e-7),
            Accuracy("wrong", "y", 0.1, 1e-7, agrees=False, reason="error 0.1"),
        ),
    )
    found = fact.verdict(record)
    assert found.text == "2.0× faster than eager" and found.tone == "good"
    assert found.detail.endswith("✗ wrong differs in y; ✗ broken raised ValueError: no")
    head, table = view.to_text(record).split("Timings:")
    assert "✗ wrong differs in y" in head
    assert "✗ differs in y" in table and "raised ValueError: no" in table and "ran eager" not in table
