"""The part of libdevice that is linked in the place of the whole."""

from __future__ import annotations

import pytest

from nbcompile.compiler.runtime.gpu import compile as triton_compile
from nbcompile.compiler.runtime.gpu import libdevice
from nbcompile.compiler.runtime.gpu.compile import Built, compile_function
from nbcompile.compiler.stages import Argument, Config, Launch
from nbcompile.targets import parse
from tests.nightly import few

pytest.importorskip("triton")

COMMON = ("libdevice.rsqrt", "libdevice.exp2", "libdevice.expm1", "libdevice.log1p", "libdevice.tanh",
          "tl.sin", "tl.cos", "tl.erf", "libdevice.erfc", "tl.rsqrt", "libdevice.exp")  # fmt: skip


def compiled(call: str, dtype: str) -> Built:
    text = f"""import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x, y):
    at = tl.arange(0, 128)
    tl.store(y + at, {call}(tl.load(x + at)))
"""
    launch = Launch("kernel", "", (Argument("x", f"*{dtype}"), Argument("y", f"*{dtype}")), (), (Config({}),))
    return compile_function(text, launch, Config({}), parse("cuda:90"), ((0, 16), (1, 16)))


@few(4)
@pytest.mark.parametrize("call", COMMON)
def test_the_common_part_makes_the_code_that_the_whole_does(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed: list[bool] = []
    is_missing = libdevice.is_missing
    monkeypatch.setattr(libdevice, "is_missing", lambda llir: missed.append(is_missing(llir)) or missed[-1])
    ours = compiled(call, "fp32")
    assert missed == [False]
    monkeypatch.setattr(triton_compile.libdevice, "common_part", lambda: None)
    assert compiled(call, "fp32") == ours


@pytest.mark.parametrize(("call", "dtype"), [("libdevice.cbrt", "fp32"), ("libdevice.exp", "fp64")])
def test_what_the_part_lacks_is_linked_from_the_whole(call: str, dtype: str) -> None:
    one = compiled(call, dtype)
    assert one.binary.startswith(b"\x7fELF")
    assert not libdevice.is_missing(one.texts["llir"])


def test_a_library_of_the_users_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert libdevice.common_part()
    monkeypatch.setenv("TRITON_LIBDEVICE_PATH", "/somewhere/libdevice.bc")
    assert libdevice.common_part() is None
