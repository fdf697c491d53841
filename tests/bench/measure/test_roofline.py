"""Limits of kernels, ceilings of chips: arithmetic done by hand, and a measurement that can be wrong."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from nbcompile import targets
from nbcompile.bench.measure.roofline import measure_ceilings
from nbcompile.record import roofline as limits
from nbcompile.record.compilation import Ceilings, Compilation, Environment, Kernel, Launched
from nbcompile.record.roofline import LAUNCH_SECONDS, points, predicted_seconds, published

H100 = targets.parse("cuda:90")
ROUND = Ceilings("cuda:90", 1e12, 1e13, 1e14)
"""1 TB/s, 10 Tflop/s, 100 Tflop/s: the ridge is at 10 operations a byte."""


def kernel(**changes: object) -> Kernel:
    made = Kernel("g0.fw.k0", "k", "g0.fw.fused", (), "rows", {"triton": "x"}, bytes_read=6_000_000,
                  bytes_written=4_000_000, flops=1_000_000, target="cuda:90")  # fmt: skip
    return dataclasses.replace(made, **changes)  # type: ignore[arg-type]


def test_a_prediction_is_the_slower_of_memory_and_arithmetic_and_the_launches() -> None:
    assert predicted_seconds(3.35e9, 0, H100) == pytest.approx(1e-3 + LAUNCH_SECONDS)
    assert predicted_seconds(0, 66.9e9, H100) == pytest.approx(1e-3 + LAUNCH_SECONDS)
    assert predicted_seconds(3.35e9, 2 * 66.9e9, H100) == pytest.approx(2e-3 + LAUNCH_SECONDS)
    assert predicted_seconds(3.35e9, 66.9e9, H100, launches=3) == pytest.approx(1e-3 + 3 * LAUNCH_SECONDS)
    assert predicted_seconds(0, 989e9, H100, matrix=True) == pytest.approx(1e-3 + LAUNCH_SECONDS)
    assert predicted_seconds(1e9, 1e9, targets.CPU) is None, "no datasheet for whatever CPU this is"


@pytest.mark.parametrize("name", targets.CHIPS)
def test_every_chip_of_the_table_has_ceilings(name: str) -> None:
    found = published(targets.parse(name))
    assert found is not None and found.source == "published" and found.part
    assert 0 < found.bandwidth < found.float32_rate < found.matrix_rate


def test_a_kernel_under_its_roof() -> None:
    point = limits.point(kernel(seconds=2e-5), ROUND)
    assert point is not None and point.bound == "memory" and point.bytes == 10_000_000
    assert point.intensity == pytest.approx(0.1) and point.limit_seconds == pytest.approx(1e-5)
    assert point.share == pytest.approx(0.5) and point.predicted == pytest.approx(1e-5 + LAUNCH_SECONDS)
    heavy = limits.point(kernel(flops=10**9), ROUND)
    assert heavy is not None and heavy.bound == "compute" and heavy.limit_seconds == pytest.approx(1e-4)
    assert heavy.share is None and heavy.seconds is None
    launches = (Launched("a", (1,), {}), Launched("b", (1,), {}))
    two = limits.point(kernel(launches=launches), ROUND)
    assert two is not None and two.predicted == pytest.approx(1e-5 + 2 * LAUNCH_SECONDS)
    assert limits.point(kernel(bytes_read=0, bytes_written=0, flops=0), ROUND) is None


def test_a_product_is_held_against_the_matrix_units() -> None:
    product = limits.point(kernel(flops=10**9, sources={"triton": "acc = tl.dot(a, b, acc)"}), ROUND)
    assert product is not None and product.matrix and product.limit_seconds == pytest.approx(1e-5)
    assert product.bound == "memory", "ten times the rate: the same work meets the memory first"


def test_points_are_those_of_one_target_and_measured_ceilings_come_first() -> None:
    record = Compilation("r", kernels=(kernel(), kernel(id="g0.fw.k1", target="cpu")), ceilings=(ROUND,))
    found = limits.main_ceilings(record)
    assert found is ROUND
    assert [point.kernel for point in points(record, ROUND)] == ["g0.fw.k0"]
    unmeasured = limits.main_ceilings(dataclasses.replace(record, ceilings=()))
    assert unmeasured is not None and unmeasured.source == "published" and unmeasured.bandwidth == 3.35e12
    alone = dataclasses.replace(record, kernels=(kernel(target="cpu"),), ceilings=())
    assert limits.main_ceilings(alone) is None
    unknown = dataclasses.replace(record, kernels=(kernel(target="cuda:999"),), ceilings=())
    assert limits.main_ceilings(unknown) is None


def test_what_was_made_on_a_gpu_is_held_against_the_rates_of_that_product() -> None:
    here = Environment(device="cuda:0", processor="NVIDIA H200")
    record = Compilation("r", kernels=(kernel(),), environment=here, options={"target": "auto"})
    found = limits.main_ceilings(record)
    assert found is not None and (found.part, found.bandwidth) == ("NVIDIA H200", 4.8e12)
    asked = dataclasses.replace(record, options={"target": "cuda:90"})  # a chip's code, not this one's
    assert limits.ceilings_of(asked, "cuda:90") == published(H100)
    elsewhere = dataclasses.replace(record, kernels=(kernel(target="cpu"),))
    assert limits.main_ceilings(elsewhere) is None


def test_measuring_draws_nothing_of_the_users_random_numbers() -> None:
    measure_ceilings.cache_clear()
    before = torch.get_rng_state()
    measure_ceilings("cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_ceilings_of_this_cpu_are_of_its_order_and_measured_once() -> None:
    found = measure_ceilings("cpu")
    assert found.target == "cpu" and found.source == "measured"
    assert 1e9 < found.bandwidth < 2e12, "bytes a second"
    assert 1e9 < found.float32_rate < 1e14, "operations a second"
    assert measure_ceilings("cpu") is found
    one = torch.ones(64 << 20, dtype=torch.uint8)
    assert one.numel() / found.bandwidth < 1.0, "64 MiB in less than a second"
    assert not found.cache or 1 << 18 <= found.cache <= 1 << 32


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_the_ceilings_of_this_gpu_are_below_its_datasheet() -> None:
    chip, found = targets.of_device(0), measure_ceilings("cuda")
    assert found.target == chip.name and found.part == chip.part
    assert 0.5 * chip.bandwidth < found.bandwidth < 1.05 * chip.bandwidth
    assert 0.3 * chip.matrix_rate < found.matrix_rate < 1.05 * chip.matrix_rate
