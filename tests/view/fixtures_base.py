"""What the records made by hand have in common."""

from __future__ import annotations

import random

from nbcompile.record.compilation import Environment

ENVIRONMENT = Environment(
    nbcompile="0.1.0",
    python="3.11.9",
    torch="2.13.0+cpu",
    platform="Linux-6.1 x86_64",
    processor="Intel Xeon",
    device="cpu",
    threads=2,
    compiler="gcc 12.2.0",
    flags=("-O3", "-march=native"),
)

KERNEL_C = """// cell line 3: h = norm1(x + a)
void add_layer_norm(const float* restrict x, const float* restrict a,
                    const float* restrict weight, const float* restrict bias, float* restrict h)
{
  #pragma omp parallel for
  for (long i = 0; i < 1024; ++i) {
    float row[512], s = 0.0f, q = 0.0f;
    for (long j = 0; j < 512; ++j) {
      row[j] = x[i*512 + j] + a[i*512 + j];
      s += row[j];
    }
    // second pass: the row is in cache
    float m = s / 512;
    for (long j = 0; j < 512; ++j) q += (row[j] - m) * (row[j] - m);
    float r = 1.0f / sqrtf(q / 512 + 1e-5f);
    for (long j = 0; j < 512; ++j)
      h[i*512 + j] = (row[j] - m) * r * weight[j] + bias[j];
  }
}
"""
MB = 1_000_000


def samples(seed: int, median: float, count: int = 200) -> tuple[float, ...]:
    """Times around ``median`` seconds with a tail to the right, as real ones have."""
    draw = random.Random(seed)
    return tuple(
        median * (1 + 0.02 * draw.gauss(0, 1) + 0.05 * draw.expovariate(1) ** 2) for _ in range(count)
    )
