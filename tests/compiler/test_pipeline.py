"""Every pass can be called by itself, and leaves its record where it is run with the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import nbcompile
from nbcompile.compiler import pipeline
from nbcompile.compiler.loop_ir.fused import FusedProgram
from nbcompile.compiler.loop_ir.nodes import LoopProgram
from nbcompile.compiler.passes import Pass, Setting, places, run
from nbcompile.compiler.stages import KernelSource
from nbcompile.errors import LoweringError
from nbcompile.options import Options
from nbcompile.record.compilation import PassRecord
from nbcompile.record.recorder import Recorder
from tests.compiler.codegen.running import aten_of


def softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1)


INPUTS = torch.randn(4, 8), torch.randn(8, 8)


@pytest.mark.parametrize(("target", "passes"), [("cpu", pipeline.CPU), ("cuda:90", pipeline.GPU)])
def test_stage_by_stage(target: str, passes) -> None:
    aten = aten_of(softmax, *INPUTS)
    setting = Setting(Options(target=target, verify=True), Recorder(Options()))
    kinds = {"loops": LoopProgram, "fused": FusedProgram, "source": KernelSource}
    value, form = aten, ""
    for step in (*passes[0], *passes[1]):
        value, form = step.run(value, setting), step.makes or form
        assert isinstance(value, kinds[form])
    whole = run([*passes[0], *passes[1]], aten, aten.id, setting)[-1]
    assert value == whole and "softmax" in whole.source


def test_each_leaves_a_record_in_the_order_of_the_table() -> None:
    torch._dynamo.reset()
    compiled = nbcompile.compile(softmax, options={"cache": False})
    x, w = (item.clone().requires_grad_() for item in INPUTS)
    compiled(x, w).sum().backward()
    names = [item.name for item in compiled.compilation.passes]
    code = [step.name for half in pipeline.CPU for step in half]
    captured = [step.name for step in pipeline.CAPTURED]
    traced = [step.name for step in pipeline.TRACED]
    before = ["capture", *captured]
    assert names[: len(before)] == before
    rest = names[len(before) :]
    assert rest[: len(traced) + 1] == [*traced, "autograd"]
    assert rest[len(traced) + 1 :] == [*code, "build", *code, "build"]


def test_what_comes_from_the_cache_names_the_same_passes(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("NBCOMPILE_CACHE_DIR", str(tmp_path))
    found = []
    for _ in range(2):
        torch._dynamo.reset()
        compiled = nbcompile.compile(softmax)
        compiled(*INPUTS)
        found.append([(item.name, item.before, item.after) for item in compiled.compilation.passes])
    assert found[0] == found[1]


def test_a_pass_that_raises_leaves_its_record() -> None:
    def refuse(value: object, setting: Setting) -> None:
        setting.said.append("half-way")
        raise LoweringError("no")

    recorder = Recorder(Options())
    steps = [Pass("one", lambda value, _: value + 1, makes="loops"), Pass("two", refuse)]
    with pytest.raises(LoweringError):
        run(steps, 1, "g0.fw", Setting(Options(), recorder))
    one, two = recorder.parts(PassRecord)
    assert (one.name, one.before, one.after, one.note) == ("one", "g0.fw", "g0.fw.loops", "")
    assert (two.before, two.after, two.note) == ("g0.fw.loops", "g0.fw.loops", "half-way; LoweringError")
    assert replace(two, milliseconds=0.0) != replace(one, milliseconds=0.0)


def test_where_each_pass_leads() -> None:
    ids = [(before, after) for _, before, after in places([*pipeline.CPU[0], *pipeline.CPU[1]], "g1.bw")]
    assert ids[0] == ("g1.bw", "g1.bw.loops") and ids[-1] == ("g1.bw.fused", "g1.bw.source")
