"""The sentence that says why a call takes its time, for records whose cause is known."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from nbcompile.record.compilation import (
    Ceilings,
    Compilation,
    Decision,
    Graph,
    GraphBreak,
    Kernel,
    Measurement,
    Node,
    Recompile,
    Span,
)
from nbcompile.record.provenance import Links
from nbcompile.view import mime_bundle, to_text, whole
from nbcompile.view.facts.coaching import loop_of_recompiles, most_typical
from nbcompile.view.facts.facts import facts
from nbcompile.view.facts.why import Why, timed_graphs, why
from nbcompile.view.pending import Pending

MB = 1_000_000


def record(
    kernel: float, library: float, call: float, *, moved: int = 8 * MB, spread: float = 0.02, **more: Any
) -> Compilation:
    """One kernel and one library call of these seconds, in a call of so many; memory gives 10 GB/s."""
    steady = tuple(call * (1 + spread * (n % 11 - 5) / 5) for n in range(22))
    nodes = (
        Node("g0.fw.k0", "k0", "k0", "kernel", bytes=moved // 2, seconds=kernel),
        Node("g0.fw.c0", "mm", "aten.mm", "library", bytes=moved // 2, seconds=library),
    )
    made = Kernel(
        "g0.fw.k0", "add_relu", "g0.fw.fused", (), "pointwise", {"c": "void k0(void) {}"},
        bytes_read=moved // 2, bytes_written=moved // 2, seconds=kernel,
    )  # fmt: skip
    return Compilation(
        id="r", backend="nbcompile", graphs=(Graph("g0.fw.fused", "fused", "fused", nodes),), kernels=(made,),
        measurements=(
            Measurement("cell", "eager", steady=tuple(2 * each for each in steady), ran_compiled=False),
            Measurement("cell", "nbcompile", steady=steady, graphs=1 + len(more.get("breaks", ()))),
        ),
        ceilings=(Ceilings("cpu", 1e10, 1e11, 1e11, "measured"),), **more,
    )  # fmt: skip


BREAK = GraphBreak("print() writes to the screen", kind="data-dependent", spans=(Span(4),))
SAVED = Decision("g0.fw.d0", "g0.fw.fused", "l0", "l1", "producer-consumer", True, "same", "", MB)
SMALL_CACHE = dataclasses.replace(
    record(1e-4, 1e-6, 1.1e-4), ceilings=(Ceilings("cpu", 1e10, 1e11, 1e11, "measured", cache=4 * MB),)
)
CASES: dict[str, tuple[Compilation, str, str]] = {
    "library": (record(1e-3, 2e-3, 3.1e-3), "library", "65% of the time is 1 library call (mm)"),
    "parts that take longer than the whole": (
        record(3e-3, 9e-3, 1e-2), "library", "75% of the time is 1 library call (mm)"
    ),
    "overhead": (record(1e-6, 2e-6, 20e-6), "overhead", "17 µs of 20 µs go to guards"),
    "half of it overhead": (record(5.4e-5, 1e-6, 1e-4), "cache", "; 45 µs of 100 µs are guards"),
    "breaks": (
        record(1e-4, 1e-4, 1e-3, breaks=(BREAK,)), "breaks",
        "1 graph break (cell line 4: print() writes to the screen): 800 µs of 1 ms a call are outside of the "
        "kernels (guards and launching of 2 graphs, and Python between them)",
    ),
    "breaks that cost nothing": (record(1e-3, 1e-6, 1.01e-3, breaks=(BREAK,)), "memory", "k0 takes 99%"),
    "recompiles": (
        record(1e-3, 1e-3, 3e-3, recompiles=(Recompile("x.shape[0] == 3"),)), "recompiles",
        "compiled again 1 time: x.shape[0] == 3",
    ),
    "memory": (record(1e-3, 1e-6, 1.1e-3), "memory", "at 80% of what memory allows for its 8 MB"),
    "cache": (record(1e-4, 1e-6, 1.1e-4), "cache", "its 8 MB come from a cache"),
    "too large for a cache": (record(0.05, 1e-6, 0.051, moved=1000 * MB), "memory", "at 100% of what memory"),
    "larger than its cache": (SMALL_CACHE, "memory", "at 100% of what memory"),
    "kernel": (record(1e-2, 1e-6, 1.1e-2), "kernel", "at 8% of what bounds it (memory)"),
    "busy": (record(1e-3, 2e-3, 3e-3, spread=0.9), "busy", "Do not trust these times: the"),
    "busy, a kernel": (record(2e-3, 1e-6, 2.1e-3, spread=0.9), "busy", "Do not trust these times: the"),
    "busy, whatever": (record(1e-6, 2e-6, 2e-5, spread=0.9), "overhead", "is unsure: the machine is busy"),
    "busy, breaks": (
        record(1e-4, 1e-4, 1e-3, spread=0.9, breaks=(BREAK,)), "breaks", "is unsure: the machine is busy",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_cause_is_named(name: str) -> None:
    compilation, cause, text = CASES[name]
    found = why(compilation, facts(compilation, Links(compilation)))
    assert (found.cause, text in found.text) == (cause, True), found.text
    assert whole(compilation)["view"]["why"] == found.text
    bundle = mime_bundle(compilation)
    assert found.text.split(" (")[0][:40] in to_text(compilation).replace("\n", " ")
    assert found.cause == "busy" or "because" not in bundle["text/html"]  # styles are inline


@pytest.mark.parametrize("known", [True, False])
def test_a_backward_pass_is_not_called_overhead(known: bool) -> None:
    compilation = record(1e-6, 2e-6, 20e-6)
    trained = tuple(dataclasses.replace(each, what="forward+backward") for each in compilation.measurements)
    backward = (Graph("g0.bw", "backward", "backward"),) if known else ()
    compilation = dataclasses.replace(
        compilation, measurements=trained, graphs=(*compilation.graphs, *backward)
    )
    said = why(compilation, facts(compilation, Links(compilation))).text
    assert said.startswith("17 µs of 20 µs go to the backward pass (which") is not known
    assert ("too small for kernels to matter" in said) is known


BUSY = (record(1e-3, 2e-3, 3e-3, spread=0.9), record(1e-6, 2e-6, 2e-5, spread=0.9))


@pytest.mark.parametrize("compilation", BUSY)
def test_the_point_is_not_cut_off(compilation: Compilation) -> None:
    """It was "The machine is busy: half of the calls ... than 216 µs o…" on a screen of 100 columns."""
    text = to_text(compilation)
    assert why(compilation, facts(compilation, Links(compilation))).text in " ".join(text.split())
    assert "Do not trust these times" in text or "how long is unsure" in " ".join(text.split())


def test_a_difference_far_beyond_the_noise_keeps_its_reason() -> None:
    busy = record(1e-3, 2e-3, 3e-3, spread=0.9)
    eager = dataclasses.replace(busy.measurements[0], steady=(6e-6,) * 22)
    far = dataclasses.replace(busy, measurements=(eager, busy.measurements[1]))
    found = why(far, facts(far, Links(far)))
    assert found.cause == "library" and found.text.startswith("67% of the time is 1 library call (mm)")
    assert "the machine is busy" in found.text and "Do not trust" not in found.text
    assert found.text in " ".join(to_text(far).split())


def test_nothing_is_said_of_what_was_not_measured() -> None:
    broken = dataclasses.replace(record(1e-3, 1e-3, 2e-3, breaks=(BREAK,)), measurements=())
    assert why(broken, facts(broken, Links(broken))).cause == ""  # one graph: nothing could be fused across
    captured = tuple(Graph(f"g{number}.fx", "fx", "fx") for number in range(2))
    broken = dataclasses.replace(broken, graphs=(*captured, *broken.graphs))
    found = why(broken, facts(broken, Links(broken)))
    assert found.cause == "breaks" and "nothing is fused across" in found.text
    compilation = dataclasses.replace(record(1e-3, 1e-3, 2e-3), measurements=())
    assert why(compilation, facts(compilation, Links(compilation))).cause == ""
    eagerly = Measurement("cell", "nbcompile", ran_compiled=False, reason="no graph")
    compilation = dataclasses.replace(compilation, measurements=(eagerly,))
    assert why(compilation, facts(compilation, Links(compilation))).cause == ""


def test_what_is_pending_is_said_in_every_form_and_nothing_is_called_untimed() -> None:
    compilation = dataclasses.replace(record(1e-3, 1e-3, 2e-3), measurements=(), compile_seconds=0.25)
    done, pending = mime_bundle(compilation), mime_bundle(compilation, (), Pending("timing eager", 12.5))
    assert "not timed" in done["text/plain"] and "not timed" in done["text/html"]
    for form in ("text/plain", "text/html"):
        assert "timing eager…" in pending[form] and "not timed" not in pending[form]
    assert whole(compilation, Pending("timing eager", 12.5))["view"]["pending"] == {
        "text": "timing eager", "since": 12.5,
    }  # fmt: skip
    assert "pending" not in whole(compilation)["view"]


def test_no_gain_is_counted_where_none_is_clear() -> None:
    unclear = record(1e-3, 1e-3, 2e-3, spread=0.9)
    near = tuple(1.2 * each for each in unclear.measurements[1].steady)
    eager = dataclasses.replace(unclear.measurements[0], steady=near)
    unclear = dataclasses.replace(unclear, measurements=(eager, unclear.measurements[1]), compile_seconds=1.0)
    said = facts(unclear, Links(unclear))
    assert "no clear difference" in said.verdict.text and not any("pays off" in line for line in said.lines)
    clear = dataclasses.replace(record(1e-3, 1e-3, 2e-3), compile_seconds=1.0)
    assert any("pays off after 500 calls" in line for line in facts(clear, Links(clear)).lines)


def one_graph(compilation: Compilation) -> Compilation:
    eager, ours = compilation.measurements
    return dataclasses.replace(compilation, measurements=(eager, dataclasses.replace(ours, graphs=1)))


def test_a_break_beside_the_only_graph_has_no_part_in_its_time() -> None:
    """Two breaks in lines without a tensor: the time outside of the kernels is one graph's own."""
    compilation = one_graph(record(1e-6, 2e-6, 20e-6, breaks=(BREAK, BREAK)))
    found = why(compilation, facts(compilation, Links(compilation)))
    assert found.cause == "overhead" and "between" not in found.text


def said(compilation: Compilation) -> Why:
    return why(compilation, facts(compilation, Links(compilation)))


def test_each_run_of_a_graph_counts_in_the_time_of_a_call() -> None:
    def repeated(times: int) -> Compilation:
        once = record(1e-3, 2e-4, 3.7e-3, decisions=(SAVED,))
        return dataclasses.replace(once, graphs=(dataclasses.replace(once.graphs[0], runs=times),))

    once, thrice = repeated(1), repeated(3)
    assert said(once).cause == "outside" and "2.5 ms of 3.7 ms" in said(once).text
    assert said(thrice).cause != "outside" and "takes 81% of the time" in said(thrice).text
    found = facts(thrice, Links(thrice))
    assert (found.moved, found.unfused) == (3 * 12 * MB, 3 * 13 * MB)
    assert [call.runs for call in found.calls] == [3, 3]
    text = to_text(thrice)
    assert "3 runs together" in text
    assert "all together at least 2.4 ms, measured 3 ms" in text
    assert timed_graphs(thrice) == 3


def test_what_guards_cannot_take_is_not_said_to_be_theirs() -> None:
    """As on a busy machine, where a call of 1.2 ms took 3 ms, and its kernels were timed when it was not."""
    compilation = one_graph(record(1e-3, 2e-4, 3e-3))
    found = why(compilation, facts(compilation, Links(compilation)))
    assert found.cause == "outside" and "too small" not in found.text
    assert found.text.startswith(
        "1.8 ms of 3 ms are outside of the kernels, more than guards and launching take"
    )
    beside = one_graph(record(1e-3, 5e-4, 2.7e-3))
    assert "1.2 ms of 2.7 ms are outside of the kernels" in why(beside, facts(beside, Links(beside))).text


def test_of_few_samples_it_is_not_said_that_noise_is_what_hides_a_difference() -> None:
    compilation = record(1e-3, 1e-3, 2e-3)
    eager, ours = compilation.measurements
    times = (2e-6, 3e-6, 3e-6, 4e-6, 5e-6, 20e-6), (15e-6, 16e-6, 30e-6, 40e-6, 80e-6, 90e-6)
    few = tuple(dataclasses.replace(m, steady=s) for m, s in zip((eager, ours), times, strict=True))
    said = facts(dataclasses.replace(compilation, measurements=few), Links(compilation)).verdict.text
    assert said == "no clear difference from eager (0.1×, of 6 samples only)"


def test_of_many_recompiles_the_reason_of_most_is_told() -> None:
    reasons = ["k == 'a'", "k == 'b.0'", "tensor 'v' dtype mismatch. expected Long, actual Float", "k == 'c'",
               "tensor 'v' rank mismatch. expected 1, actual 2"]  # fmt: skip
    recompiles = [Recompile(reason, "f", f"g{n}") for n, reason in enumerate(reasons)]
    assert most_typical(recompiles).reason == "k == 'c'"
    assert most_typical(recompiles[2:3]) is recompiles[2]
    (told,) = loop_of_recompiles(record(1e-3, 1e-3, 3e-3, recompiles=tuple(recompiles)))
    assert told.startswith("f was compiled again 5 times: k == 'c'. Cure: a text changes")
