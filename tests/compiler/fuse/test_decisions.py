"""Every pair leaves one decision; each refusal has its code and a sentence one can read."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import torch

import nbcompile
from nbcompile.compiler.fuse.legality import COST
from nbcompile.compiler.fuse.loops_to_groups import loops_to_groups
from nbcompile.compiler.fuse.rules import Candidate, fusion_rule
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.lower.aten_to_loops import aten_to_loops
from nbcompile.errors import OptionError
from nbcompile.options import Options
from tests.compiler.codegen.running import NO_CACHE, aten_of


def fuse(function, *inputs: torch.Tensor, options: Options = NO_CACHE) -> FusedProgram:
    return loops_to_groups(aten_to_loops(aten_of(function, *inputs), options), options)


def refusals(program: FusedProgram) -> dict[str, str]:
    return {item.code: item.reason for item in program.decisions if not item.accepted}


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


def different_axes(x):
    return x.amax(0), x.amax(1).exp(), torch.softmax(x, 1), torch.softmax(x, 0)


def other_rows(x):
    y = torch.softmax(x, 1)
    return y.roll(1, 0) + 1


def recompute(x):
    y = x.exp()
    return y[:, None] * y


def overwritten(x):
    y = x.roll(1, 0) * 2
    x.copy_(x + 1)
    return y


def scatter(x, rows, values):
    return torch.index_put(x, (rows,), values, accumulate=True) * 2


def across(x, y):
    row = x + 1
    return row, row * y


def few_rows(x):
    return torch.softmax(x, 1)


def too_many(*xs):
    total = xs[0]
    for x in xs[1:]:
        total = total + x
    return total


def cycle(x, w):
    y = x.sin()
    return y + y @ w


CASES = [
    ("library-call", cycle, (ones(40, 40), ones(40, 40))),
    ("scatter", scatter, (ones(10, 8), torch.zeros(4, dtype=torch.int64), ones(4, 8))),
    ("recompute", recompute, (ones(500),)),
    ("overwritten", overwritten, (ones(5000),)),
    ("few-rows", few_rows, (ones(1, 1 << 16),)),
    ("other-order", across, (ones(64), ones(500, 64))),
    ("too-many-buffers", too_many, tuple(ones(16) for _ in range(80))),
    ("cycle", cycle, (ones(40, 40), ones(40, 40))),
    ("other-rows", other_rows, (ones(100, 200),)),
    ("different-axes", different_axes, (ones(100, 200),)),
]


@pytest.mark.parametrize(("code", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_each_refusal_has_its_code_and_a_sentence(code, function, inputs):
    found = refusals(fuse(function, *inputs))
    assert code in found, found
    reason = found[code]
    assert len(reason.split()) >= 3 and len(reason) < 120 and not reason.endswith("."), reason


def test_every_pair_has_one_decision_and_every_producer_is_decided():
    def function(x, w):
        y = torch.softmax(x.sin() + 1, 1)
        return (y @ w).relu() + y, y.sum()

    program = fuse(function, ones(64, 64), ones(64, 64))
    pairs = [(item.producer, item.consumer) for item in program.decisions]
    assert len(pairs) == len(set(pairs))
    makers = {out.name: item.id for item in program.program.statements for out in item.outputs if out}
    for item in program.program.statements:
        names = [load.buffer for load in item.reads()] if hasattr(item, "reads") else []
        for name in names:
            if name in makers:
                assert (makers[name], item.id) in pairs
    assert len({item.id for item in program.decisions}) == len(program.decisions)
    assert all(item.bytes_saved >= 0 and item.reason for item in program.decisions)


@pytest.mark.parametrize(("threads", "rows"), [(1, 2), (2, 2), (4, 3), (16, 11)])
def test_how_many_rows_keep_a_cpu_busy_depends_on_its_threads(threads, rows):
    options = replace(NO_CACHE, threads=threads)
    assert len(fuse(few_rows, ones(rows, 1 << 16), options=options).groups) == 1
    assert "few-rows" in refusals(fuse(few_rows, ones(rows - 1, 1 << 16), options=options))


def test_another_number_of_threads_is_another_compile():
    compiled = nbcompile.compile(few_rows, options={"cache": False})
    before = torch.get_num_threads()
    try:
        kernels = []
        for threads in (1, 8):
            torch.set_num_threads(threads)
            assert torch.allclose(compiled(ones(2, 1 << 16)), ones(2, 1 << 16) / (1 << 16))
            kernels.append(len(compiled.compilation.kernels))
    finally:
        torch.set_num_threads(before)
    assert kernels[0] == 1 and kernels[1] > 2


def test_what_is_kept_of_few_rows_or_of_rows_along_memory_stays_in_one_kernel():
    assert len(fuse(across, ones(64), ones(4, 64)).groups) == 1
    assert len(fuse(across, ones(500, 1), ones(500, 64)).groups) == 1


def chain(x):
    return torch.tanh(torch.sin(x) + 1)


def test_fusion_can_be_switched_off():
    program = fuse(chain, ones(100), options=replace(NO_CACHE, fuse=False))
    assert [len(group.loops) for group in program.groups] == [1, 1, 1]
    assert set(refusals(program)) == {"fusion-off"}
    assert len(fuse(chain, ones(100)).groups) == 1


def test_one_pair_can_be_kept_apart():
    program = fuse(chain, ones(100), options=replace(NO_CACHE, no_fuse=(("sin", "add"),)))
    assert [[loop.name for loop in group.loops] for group in program.groups] == [["sin"], ["add", "tanh"]]
    (refused,) = [item for item in program.decisions if not item.accepted]
    assert refused.code == "user" and refused.overruled


def test_long_chains_fuse_in_time():
    """300 loops take under a second on an idle machine; the bound leaves room for a busy one."""

    def function(x):
        for n in range(150):
            x = x * 0.5 + n
        return x

    loops = aten_to_loops(aten_of(function, ones(64)), NO_CACHE)
    start = time.process_time()
    program = loops_to_groups(loops, NO_CACHE)
    assert time.process_time() - start < 10
    assert sum(len(group.loops) for group in program.groups) == 300


def test_small_loops_behind_one_kernel_are_one_launch():
    def function(x):
        y = x.sum(2)
        return y.sum(0), (x * x).sum(2).sum(0)

    gpu = replace(NO_CACHE, target="cuda:90")
    for options, rows, joined in ((gpu, 16, True), (NO_CACHE, 16, True), (NO_CACHE, 64, False)):
        program = fuse(function, ones(rows, 128, 4096), options=options)
        codes = {item.code for item in program.decisions if item.accepted}
        assert ("same-launch" in codes) == joined
        assert len(program.groups) == 2 or not joined


def test_columns_are_added_up_beside_rows_whatever_is_made_of_their_sums():
    """The gradients of a norm whose weight is rounded: rows along memory, and the rounding by itself."""

    def function(x, g):
        up = x * g
        return (up * x).sum(0).bfloat16(), (up * g).sum(1), up

    program = fuse(function, ones(4096, 2048), ones(4096, 2048), options=replace(NO_CACHE, target="cuda:90"))
    large, small = sorted(program.groups, key=lambda group: -len(group.loops))
    assert len(small.loops) == 1 and small.loops[0].points() == 2048
    assert [axis.extent.constant for axis in large.nest.inner_axes] == [2048] and len(large.split) == 1


def test_small_loops_that_share_a_little_read_are_one():
    def function(x, scale):
        return x + 1, x * scale

    assert len(fuse(function, ones(100), torch.ones(())).groups) == 1
    assert (
        len(fuse(lambda x, y, scale: (x * scale, y * scale), ones(100), ones(40), torch.ones(())).groups) == 2
    )
    large = fuse(lambda x, y, scale: (x * scale, y * scale), ones(10000), ones(10000), torch.ones(()))
    assert len(large.groups) == 2


def test_a_pair_kept_apart_does_not_meet_through_a_third():
    def function(x):
        y = x.sin()
        return y + 1, (y + 1) * y.cos()

    names = {loop.name for group in fuse(function, ones(100)).groups for loop in group.loops}
    assert {"sin", "mul"} <= names
    program = fuse(function, ones(100), options=replace(NO_CACHE, no_fuse=(("sin", "mul"),)))
    for group in program.groups:
        assert not {"sin", "mul"} <= {loop.name for loop in group.loops}


FORCED = [
    ("recompute", recompute, (ones(500),), "auto"),
    ("recompute", recompute, (ones(5000),), "cuda:90"),  # of 500 a second kernel would take longer
    ("few-rows", few_rows, (ones(1, 1 << 16),), "auto"),
    ("other-order", across, (ones(64), ones(500, 64)), "auto"),
]


@pytest.mark.parametrize(("code", "function", "inputs", "target"), FORCED, ids=lambda case: str(case)[:20])
def test_a_pair_refused_for_its_cost_can_be_forced(code, function, inputs, target):
    options = replace(NO_CACHE, target=target)
    program = fuse(function, *inputs, options=options)
    names = {loop.id: loop.name for group in program.groups for loop in group.loops}
    refused = [item for item in program.decisions if item.code == code]
    assert refused and all(item.forceable for item in refused)
    pairs = tuple((names[item.producer], names[item.consumer]) for item in refused)
    forced = fuse(function, *inputs, options=replace(options, force_fuse=pairs))
    assert len(forced.groups) < len(program.groups)
    asked = [item for item in forced.decisions if item.overruled]
    assert asked and all(item.accepted for item in asked)
    both = fuse(function, *inputs, options=replace(options, force_fuse=pairs[:1], fuse=False))
    assert sum(len(group.loops) == 2 for group in both.groups) == 1


BY_NATURE = [case for case in CASES if case[0] not in COST]


@pytest.mark.parametrize("case", BY_NATURE, ids=[code for code, *_ in BY_NATURE])
def test_a_pair_that_cannot_be_one_kernel_is_not_forced(case):
    code, function, inputs = case
    program = fuse(function, *inputs)
    names = {item.id: item.outputs[0].name for item in program.program.statements}
    refused = [item for item in program.decisions if item.code == code]
    assert refused and not any(item.forceable for item in refused)
    pairs = tuple((names[item.producer], names[item.consumer]) for item in refused)
    forced = fuse(function, *inputs, options=replace(NO_CACHE, force_fuse=pairs))
    assert {item.code for item in forced.decisions if not item.accepted} >= {code}
    assert not any(item.overruled for item in forced.decisions)


@fusion_rule("test-two")
def two_loops(candidate: Candidate) -> str | None:
    assert len(candidate.merged.loops) == len(candidate.first.loops) + len(candidate.second.loops)
    return "two loops are enough" if len(candidate.merged.loops) > 2 else None


def test_a_rule_from_outside_refuses_what_could_be_fused():
    def chain(x):
        return torch.softmax(x, -1).exp()

    options = replace(NO_CACHE, rules=("test-two",))
    program = fuse(chain, ones(64, 64), options=options)
    assert len(fuse(chain, ones(64, 64)).groups) == 1
    assert len(program.groups) == 3 and all(len(group.loops) <= 2 for group in program.groups)
    refused = [item for item in program.decisions if item.code == "test-two"]
    assert refused and {item.reason for item in refused} == {"two loops are enough"}
    assert all(item.forceable for item in refused)
    names = {item.id: item.outputs[0].name for item in program.program.statements}
    pair = (names[refused[0].producer], names[refused[0].consumer])
    forced = fuse(chain, ones(64, 64), options=replace(options, force_fuse=(pair,)))
    assert max(len(group.loops) for group in forced.groups) > 2


def test_a_rule_is_asked_of_legal_pairs_only_and_must_be_known():
    by_nature = refusals(fuse(different_axes, ones(100, 200), options=replace(NO_CACHE, rules=("test-two",))))
    assert "different-axes" in by_nature or "different-shape" in by_nature
    with pytest.raises(OptionError, match=r"no fusion rule 'nowhere'.*test-two"):
        fuse(few_rows, ones(2, 2), options=replace(NO_CACHE, rules=("nowhere",)))


def test_rules_as_an_option():
    options = Options.from_mapping({"rules": "a,b", "no_fuse": "x:y"})
    assert options.rules == ("a", "b")
    assert options.as_pairs() == (("no_fuse", "x:y"), ("rules", "a,b"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"no_fuse": None}, "option no_fuse wants a list, got None"),
        ({"force_fuse": [3]}, "option force_fuse wants pairs producer:consumer, got 3"),
        ({"rules": 3}, "option rules wants a list, got 3"),
        ({"threads": None}, "option threads=None wants a number"),
        ({"threads": float("inf")}, "option threads=inf wants a number"),
    ],
)
def test_an_option_of_another_type_says_what_it_wants(given: dict[str, object], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        Options.from_mapping(given)
