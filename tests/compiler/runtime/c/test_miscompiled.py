"""Loops that gcc would miscompile are found in what it prints, and built otherwise."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

from nbcompile.compiler.runtime.c.if_conversion import (
    WITHOUT_IF_CONVERSION,
    WITHOUT_INDUCTION_VARIABLES,
    needed_flags,
)
from nbcompile.compiler.runtime.c.toolchain import find_toolchain

COUNT = """
void count(const unsigned char *kept, const unsigned short *v, long *out) {
  long sum_1 = 0;
  double sum_2 = 0;
  #pragma omp simd reduction(+:sum_1, sum_2)
  for (long i = 0; i < 3250; i++) {
    const float mul = as_float(v[i]) * (as_float(as_bf16((float)(kept[i] != 0))) / 0.75f);
    const float t = as_float(as_bf16(mul));
    const _Bool ne = t != t;
    const _Bool is = !ne;
    const _Bool isnan = mul != mul;
    sum_1 += (long)is;
    sum_2 += isnan ? 0.0f : mul;
  }
  out[0] = sum_1;
  out[1] = (long)sum_2;
}
"""
SHORT_ROWS = """
void choose(const float *a, const float *b, float *chosen) {
  for (long i = 0; i < 5; i++)
    for (long j = 0; j < 5; j++) {
      const float a_ = a[i*5 + j];
      chosen[i*5 + j] = a_ > 0.0f ? b[i*5 + j] : a_;
    }
}
"""
LAST_BUT_ONE = """
void last_but_one(const float *x, float *out, long n) {
  #pragma omp simd
  for (long j = 0; j < n; j++) {
    const _Bool ge = j >= n - 2;
    const _Bool le = j <= n - 2;
    const _Bool is = ge && le;
    const _Bool other = !is;
    const long at = n*2 - 1 - j;
    const long place = (at > 0L ? at : 0L) < n + 1 ? (at > 0L ? at : 0L) : n + 1;
    out[j] = other ? 0.0f : x[place];
  }
}
"""
KEPT_ROW = """
void kept_row(const float *mean, const float *scale, const float *gate, const float *given, const float *x,
              const float *weight, float *out, float *sums_2, float *other_sums_2) {
  double sums[100], other_sums[100];
  for (long c = 0; c < 100; c++) sums[c] = 0;
  for (long c = 0; c < 100; c++) other_sums[c] = 0;
  for (long i = 0; i < 2; i++) {
    float kept[100];
    float kept_2[100];
    const float mean_ = mean[i];
    const float scale_ = scale[i];
    float sum = 0;
    float sum_1 = 0;
    #pragma omp simd reduction(+:sum, sum_1) simdlen(8)
    for (long j = 0; j < 100; j++) {
      const float open = (gate[i*100 + j] <= 0.1f) ? 0.0f : given[i*100 + j];
      const float scaled = open * ((x[i*100 + j] - mean_) * scale_);
      const float weight_ = weight[j];
      const float t = (x[i*100 + j] - mean_) * scale_;
      kept[j] = t;
      const float t_2 = open * weight_;
      kept_2[j] = t_2;
      sum += scaled * weight_;
      sum_1 += t_2;
      sums[j] += scaled;
      other_sums[j] += open;
    }
    const float t_3 = sum / 100.0f;
    const float t_4 = sum_1 / 100.0f;
    #pragma omp simd
    for (long j = 0; j < 100; j++) {
      const float found = ((kept_2[j] - (kept[j] * t_3)) - t_4) * scale_;
      out[i*100 + j] = given[i*100 + j] + found;
    }
  }
  for (long c = 0; c < 100; c++) sums_2[c] = (float)sums[c];
  for (long c = 0; c < 100; c++) other_sums_2[c] = (float)other_sums[c];
}
"""
BF16 = """
static inline float as_float(unsigned short x) {
  union { unsigned int u; float f; } bits = { (unsigned int)x << 16 };
  return bits.f;
}
static inline unsigned short as_bf16(float x) {
  union { float f; unsigned int u; } bits = { x };
  if (x != x) return 0x7fc0;
  return (unsigned short)((bits.u + 0x7fff + ((bits.u >> 16) & 1)) >> 16);
}
"""


def test_a_count_beside_a_sum(tmp_path: Path) -> None:
    toolchain = find_toolchain()
    out = tmp_path / "count.so"
    toolchain.compile(BF16 + COUNT, out)
    kept = (ctypes.c_ubyte * 3250)(*(i % 4 != 0 for i in range(3250)))
    v = (ctypes.c_ushort * 3250)(*(0x3F80 if i % 5 else 0x7FC0 for i in range(3250)))
    found = (ctypes.c_long * 2)()
    ctypes.CDLL(str(out)).count(kept, v, found)
    numbers = [i for i in range(3250) if i % 5]
    assert found[0] == len(numbers)
    assert found[1] == int(sum(4 / 3 for i in numbers if i % 4))


@pytest.mark.parametrize("verb", ["LOAD", "STORE"])
def test_what_gcc_prints(verb: str) -> None:
    body = f"  _12 = &D.5688[_25];\n  pretmp_141 = .MASK_{verb} (_12, 64B, _38);\n"
    assert needed_flags(f"\n;; Function k (k, funcdef_no=2)\n{body}") == WITHOUT_IF_CONVERSION
    assert not needed_flags(f"\n;; Function k (k)\n{body.replace('&D.5688', '&kept')}")
    apart = body.replace("  pretmp", "\n;; Function other (other)\n  pretmp")
    assert not needed_flags(f"\n;; Function k (k)\n{apart}")


def test_short_rows_of_which_some_elements_are_read(tmp_path: Path) -> None:
    """gcc 12.2 takes the neighbours' masks for one (PR tree-optimization/114375)."""
    out = tmp_path / "choose.so"
    toolchain = find_toolchain()
    needed = toolchain.compile(SHORT_ROWS, out)
    assert needed == (WITHOUT_IF_CONVERSION if toolchain.kind == "gcc" else ())
    a, b, chosen = (ctypes.c_float * 25)(), (ctypes.c_float * 25)(), (ctypes.c_float * 25)()
    a[:], b[:] = [i * 7 % 11 - 5.5 for i in range(25)], range(100, 125)
    ctypes.CDLL(str(out)).choose(a, b, chosen)
    assert list(chosen) == [y if x > 0 else x for x, y in zip(a, b)]


def test_a_row_that_is_kept_beside_a_load_under_a_mask(tmp_path: Path) -> None:
    """gcc 12.2 and 13.3 lose sight of what is stored in the row (the fuzzer's seed 20106515)."""
    out = tmp_path / "kept.so"
    find_toolchain().compile(KEPT_ROW, out)
    torch.manual_seed(0)
    mean, scale, weight = torch.randn(2, 1), torch.rand(2, 1) + 1, torch.randn(100)
    gate, given, x = torch.randn(3, 2, 100)
    found, sums, others = torch.full((2, 100), torch.nan), torch.zeros(100), torch.zeros(100)
    tensors = mean, scale, gate.clone(), given.clone(), x.clone(), weight, found, sums, others
    ctypes.CDLL(str(out)).kept_row(*(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors))
    opened = given.where(gate > 0.1, 0)
    row, row_2 = (x - mean) * scale, opened * weight
    away = row_2 - row * (row * row_2).mean(1, keepdim=True) - row_2.mean(1, keepdim=True)
    torch.testing.assert_close(found, given + away * scale)
    torch.testing.assert_close(sums, (opened * row).sum(0))
    torch.testing.assert_close(others, opened.sum(0))


def test_an_array_beside_an_address_that_is_counted_in_integers() -> None:
    """What gcc prints of it, and of what has only one of the two."""
    array, address = "  float kept_2[100];\n", "  _88 = (const float *) _179;\n"
    lanes = array.replace("kept_2", "D.2763")
    heap = "  kept_19 = __builtin_malloc (_17);\n"
    for own in (array, heap):
        assert needed_flags(f"\n;; Function k (k)\n{own}{address}") == WITHOUT_INDUCTION_VARIABLES
    assert not needed_flags(f"\n;; Function k (k)\n{heap}")
    assert not needed_flags(f"\n;; Function k (k)\n{lanes}{address}")
    assert not needed_flags(f"\n;; Function k (k)\n{array}\n;; Function l (l)\n{address}")


def _neighbours(apart: int, step: int, block: str = "") -> str:
    return f"""
;; Function k (k)
  <bb 3> [local count: 178992760]:
  # i_11 = PHI <i_14(15), 0(39)>
  _26 = (long unsigned int) i_11;
  _27 = _26 * 4;
  _30 = v0_17(D) + _27;
  a_31 = .MASK_LOAD (_30, 32B, _119);
{block}
  _118 = _27 + {apart};
  _44 = v0_17(D) + _118;
  b_45 = .MASK_LOAD (_44, 32B, _122);
  i_14 = i_11 + {step};
"""


def test_neighbours_are_less_than_a_turn_of_the_loop_apart() -> None:
    assert needed_flags(_neighbours(4, 5)) and needed_flags(_neighbours(16, 5))
    assert not needed_flags(_neighbours(4, 1))  # a window that is moved along
    assert not needed_flags(_neighbours(20, 5))
    assert not needed_flags(_neighbours(4, 5, "\n  <bb 4> [local count: 1]:\n"))


def test_halves_that_are_chosen_are_assembled(tmp_path: Path) -> None:
    """With AVX512-FP16, gcc 12 prints what its own assembler refuses: ``vmovsh`` to memory, with ``{z}``."""
    chosen = """
static inline float minimum_f32(float a, float b) {
  float m = b < a ? b : a;
  return b != b ? b : m;
}

void choose(const _Float16 *given, const _Float16 *norm, const _Float16 *norm_1, const _Float16 *norm_2,
            _Float16 *scalar_tensor, _Float16 *where, _Float16 *where_2, _Float16 *where_4) {
  scalar_tensor[0] = (_Float16)0.0f;
  const float div_ = (float)given[0] / 5.0f;
  const float t = (float)(_Float16)0.0f;
  #pragma omp simd
  for (long i = 0; i < 5; i++) {
    const float add_3 = (float)norm[i] + 1.0f;
    const float norm_1_ = (float)norm_1[i];
    const float norm_2_ = (float)norm_2[i];
    const float minimum_ = minimum_f32(norm_1_, norm_2_);
    const float sub_3 = add_3 - minimum_;
    const _Bool ge = ((float)(_Float16)sub_3) >= 0.0f;
    const float where_3 = ge ? div_ : t;
    const _Bool lt = norm_1_ < norm_2_;
    const _Bool eq = norm_1_ == norm_2_;
    const float neg = -((float)(_Float16)where_3);
    const float div_1 = neg / 2.0f;
    const float where_1 = eq ? div_1 : neg;
    const _Bool gt = norm_1_ > norm_2_;
    where[i] = (_Float16)where_3;
    where_2[i] = (_Float16)(lt ? t : where_1);
    where_4[i] = (_Float16)(gt ? t : where_1);
  }
}
"""
    find_toolchain().compile(chosen, tmp_path / "chosen.so")


@pytest.mark.parametrize("extra", [(), ("-fno-tree-fre",)], ids=["as built", "without another pass"])
@pytest.mark.parametrize("n", [3, 17])
def test_one_place_of_a_row_by_two_comparisons(tmp_path: Path, n: int, extra: tuple[str, ...]) -> None:
    """gcc 13.3 takes the place for none (the fuzzer's seed 17009101)."""
    out = tmp_path / "last.so"
    find_toolchain().compile(LAST_BUT_ONE, out, extra)
    x, found = (ctypes.c_float * (n + 2))(*range(1, n + 3)), (ctypes.c_float * n)()
    ctypes.CDLL(str(out)).last_but_one(x, found, ctypes.c_long(n))
    assert list(found) == [0.0] * (n - 2) + [n + 2.0, 0.0]
