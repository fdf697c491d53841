"""The reader of XLA's textual HLO, on texts of several versions. Needs no jax."""

from __future__ import annotations

import pytest

from nbcompile.backends.xla.hlo import bits_of, parse

TEXT = """
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4,8]{1,0})->(f32[4]{0}, pred[])}

FileNames
1 "<string>"

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%fused (p: f32[4,8]) -> f32[4] {
  %p = f32[4,8]{1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[4]{0} reduce(%p, %zero), dimensions={1}, to_apply=%add, metadata={op_name="jit(f)/a\\"b, c"}
}

ENTRY %main.4 (a.1: f32[4,8]) -> (f32[4], pred[]) {
  %a.1 = f32[4,8]{1,0:T(8,128)} parameter(0), metadata={op_name="a"}
  %k.2 = f32[4]{0} fusion(%a.1), kind=kLoop, calls=%fused, backend_config={"kind":"x, y","n":[1,2]}
  %pair = (f32[4]{0}, /*index=1*/pred[]) custom-call(f32[4]{0} %k.2), custom_call_target="go"
  %one = pred[] get-tuple-element(%pair), index=1
  ROOT %t = (f32[4]{0}, pred[]) tuple(%k.2, %one)
}
"""


def test_computations_and_instructions() -> None:
    module = parse(TEXT)
    assert set(module.computations) == {"add", "fused", "main.4"}
    entry = module.entry
    assert [item.opcode for item in entry.instructions] == [
        "parameter", "fusion", "custom-call", "get-tuple-element", "tuple",
    ]  # fmt: skip
    parameter, fusion, call, element, root = entry.instructions
    assert parameter.literal == "0" and parameter.bytes == 128 and parameter.op_name == "a"
    assert fusion.called == ("fused",) and fusion.attributes["kind"] == "kLoop"
    assert fusion.attributes["backend_config"] == '{"kind":"x, y","n":[1,2]}'
    assert call.operands == ("k.2",) and call.bytes == 17 and call.elements == 5
    assert call.attributes["custom_call_target"] == '"go"'
    assert entry.root is root and element.operands == ("pair",)


def test_metadata_and_lines() -> None:
    body = parse(TEXT).computations["fused"]
    reduce = body.root
    assert reduce.op_name == 'jit(f)/a\\"b, c'
    assert reduce.called == ("add",) and reduce.arrays == [("f32", (4,))]
    assert body.text.splitlines()[reduce.line].strip() == reduce.text


@pytest.mark.parametrize(
    ("kind", "bits"), [("pred", 8), ("bf16", 16), ("s64", 64), ("f8e4m3fn", 8), ("c128", 128)]
)
def test_sizes_of_types(kind: str, bits: int) -> None:
    assert bits_of(kind) == bits


def test_what_is_no_hlo() -> None:
    with pytest.raises(ValueError, match="no ENTRY"):
        parse("func.func public @main()")
    with pytest.raises(ValueError, match="unbalanced"):
        parse("ENTRY %m (a: f32[]) -> f32[] {\n  %a = f32[] add(%b\n}")
