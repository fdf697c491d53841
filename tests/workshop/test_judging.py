"""An answer of another form is told which form is wanted, in the same words by every judge."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from nbcompile.record.compilation import Compilation
from nbcompile.workshop import WrongAnswerError, check
from nbcompile.workshop import judging as j
from tests.nightly import few


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("export.sizes", "a dict with True or False for each of (3, 16)"),
        ("worth.choose", "a dict with True or False for each of 'chain in a server'"),
        ("training.saved", "a dict with a whole number for each of 'eager', 'compiled'"),
        ("reductions.bytes", "a dict with a number of bytes for each of 'three', 'two', 'one'"),
        ("tour.counts", "a dict with a whole number for each of 'loops'"),
    ],
)
def test_an_answer_that_is_no_dict(name: str, wanted: str) -> None:
    said = check(name, 3)
    assert not said and said.says.startswith("The answer is ") and wanted in said.says


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (lambda: j.keyed({"a": 1}, ("a", "b"), "a word"), "a dict with a word for each of 'a', 'b'."),
        (lambda: j.whole_numbers({"a": ...}, ("a",)), "a whole number: write it in place of the dots."),
        (lambda: j.whole_numbers({"a": True}, ("a",)), "a whole number: write it in place of the dots."),
        (lambda: j.yes_or_no({"a": 1}, ("a",)), "True or False: write it in place of the dots."),
        (lambda: j.number(True, "The time"), "The time is to be a number, not True."),
        (lambda: j.number(float("nan"), "The time"), "The time is to be a number, not nan."),
        (lambda: j.whole_number(True, "It"), "It is to be a whole number, not True."),
        (lambda: j.called(lambda: 1, "f", 2, when="on 2"), "but 1 was given, on 2."),
        (lambda: j.tensor([1], "f"), "f is to return a tensor, and returns [1]."),
        (
            lambda: j.like(torch.ones(2).double(), torch.ones(2), "f"),
            "f is to return a float32 tensor of shape [2], and returns a float64 tensor of shape [2].",
        ),
        (lambda: j.sentence(3, "rule"), "rule is to return a sentence or None, and returns 3."),
        (lambda: j.number(..., "The time"), "The time: write it in place of the dots."),
        (lambda: j.function(3, "f(i)"), "The answer is a function, f(i)."),
        (lambda: j.function(3), "The answer is a function."),
        (lambda: j.returned(None, "f"), "f returns nothing yet: write its body in place of the dots."),
        (lambda: j.returned(..., "f", "return two"), "f returns nothing yet: return two."),
    ],
)
def test_what_is_said_of_a_form(judge: Callable[[], Any], says: str) -> None:
    with pytest.raises(WrongAnswerError) as caught:
        judge()
    assert str(caught.value).endswith(says)


def test_a_part_of_an_answer_is_not_the_answer() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.relu(x @ w)
        c = h - h.mean(-1, keepdim=True)
        return c / (c.abs().sum(0) + 1)

    said = check("fusion.pairs", {"aten.mm → relu": False, "relu → sum": True}, program)
    assert not said and "is missing" in said.says
    assert "not decided" in check("fusion.pairs", {"relu → sum": 1}, program).says
    walks = dict.fromkeys(("three", "two", "one"), 0)
    assert "moves something" in check("reductions.bytes", walks).says


def test_an_answer_of_the_form_asked_for() -> None:
    j.whole_numbers({"a": 1, "b": 0}, ("b", "a"))
    j.yes_or_no({(3, 16): False}, ((3, 16),))
    j.function(len)
    assert j.number(2, "It") == 2.0 and j.returned(0, "f") == 0


def test_what_is_asked_of_the_compiler() -> None:
    x = torch.randn(64, 100)
    apart = j.record_of(lambda x: torch.relu(x * 2), x, fuse=False)
    fused = j.record_of(lambda x: torch.relu(x * 2), x)
    assert (j.traffic(apart), j.traffic(fused)) == (4 * x.nbytes, 2 * x.nbytes)
    assert [graph.id for graph in j.captured(fused)] == ["g0.fx"]


def test_a_value_that_is_not_the_true_one_is_told_with_its_hint() -> None:
    j.equal({"a": 1, "b": 2}, {"a": 1, "b": 2}, {})
    with pytest.raises(WrongAnswerError, match=r"^'b' is not 3\. Count again\.$"):
        j.equal({"a": 1, "b": 3}, {"a": 1, "b": 2}, {"b": "Count again."})
    j.one_of({"a": "yes"}, ("a",), ("yes", "no"))
    with pytest.raises(WrongAnswerError, match=r"^b: answer with one of yes, no\.$"):
        j.one_of({"a": "yes", "b": torch.zeros(2)}, ("a", "b"), ("yes", "no"))
    with pytest.raises(WrongAnswerError, match=r"a dict with a word for each of 'a', 'b'\.$"):
        j.one_of({"a": "yes"}, ("a", "b"), ("yes", "no"))


@few(2)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "overrule no decision"),
        ({"no_fuse": "nothing:here"}, "overrule no decision"),
        ({"no_fuse": "avg_pool2d:sub"}, "kernels|keeps another one apart"),
        ({"no_fuse": 3}, "wants a list"),
        ({"no_fusion": "a:b"}, "unknown"),
    ],
)
def test_only_what_overrules_the_compiler_beats_it(options: dict[str, Any], says: str) -> None:
    said = check("fusion.overrule", options)
    assert not said and re.search(says, said.says), said


def off_by_less_than_two_in_a_hundred(record: Compilation) -> dict[str, float]:
    kernel = record.kernels[0]
    return {
        "loops": len(kernel.loops) * 1.01,
        "megabytes": (kernel.bytes_read + kernel.bytes_written) / 1e6,
        "guarded": sum(guard.kind == "TENSOR_MATCH" for guard in record.guards),
        "refused": sum(not decision.accepted for decision in record.decisions),
    }


def test_what_is_counted_is_exact() -> None:
    w = torch.randn(64, 64)
    record = j.record_of(lambda x: torch.relu(x * 2 + 1) @ w, torch.randn(64, 64))
    answer = off_by_less_than_two_in_a_hundred(record)
    assert "'loops' is not" in check("first.read", answer, record).says
    assert check("first.read", {**answer, "loops": len(record.kernels[0].loops)}, record)


def _payback(more: float) -> Callable[..., float]:
    def calls_to_pay(cold: float, call: float, other_cold: float, other_call: float) -> float:
        if other_call >= call:
            return math.inf
        return max((other_cold - cold) / (call - other_call), 0.0) + more

    return calls_to_pay


def _merge(count: float = 0, mean: float = 0.0) -> Callable[..., Any]:
    def merge(a: Any, b: Any) -> Any:
        n = a[0] + b[0]
        if not n:
            return a
        delta = b[1] - a[1]
        m2 = a[2] + b[2] + delta * delta * (a[0] * b[0] / n)
        return n + count, a[1] + delta * (b[0] / n) + mean, m2

    return merge


def _axes(least: int, most: int = 64) -> dict[str, Any]:
    return {"query": {0: ("batch", least, 64)}, "keys": {0: ("batch", least, most), 1: ("length", 1, 128)}}


@pytest.mark.parametrize(
    ("name", "answers", "says"),
    [
        ("modes.option", ({"triton.cudagraphs": 1},), "to something else"),
        ("modes.replay", ([[True]], lambda: [[1.0]]), "a list of numbers"),
        ("modes.payback", (_payback(1),), "calls is not it"),
        ("export.dims", (_axes(0),), "begins at 0"),
        ("export.dims", (_axes(2),), "begins at 2"),
        ("export.dims", (_axes(1, 66),), "ends at 64 and at 66"),
        ("reductions.welford", (_merge(count=math.inf),), "to be whole, not inf"),
        ("reductions.welford", (_merge(mean=math.nan),), "the mean is nan"),
        ("worth.lengths", (lambda length: 10**13,), "thrown away"),
        (
            "others.retrace",
            (
                {"once": {"torch.compile": 1, "jax.jit": 1, "mine": 0}},
                lambda x: x * 2,
                {"once": [(torch.ones(2),)]},
            ),
            "'mine' is none of",
        ),
    ],
)
def test_an_answer_that_once_passed_or_broke_its_judge(
    name: str, answers: tuple[Any, ...], says: str
) -> None:
    said = check(name, *answers)
    assert not said and says in said.says, said


def test_the_right_ones_beside_them_pass() -> None:
    for answer in (_payback(0), _payback(0.5)):
        assert check("modes.payback", answer)
    assert check("export.dims", _axes(1)) and check("reductions.welford", _merge())


@pytest.mark.parametrize("text", ["", " \n"])
@pytest.mark.parametrize("name", ["codegen.tail", "codegen.fast"])
def test_no_text_is_not_the_compilers_own(name: str, text: str) -> None:
    assert "the kernel's text" in check(name, text).says
