"""What the notebooks measure and draw with: the clock of notebook 02, and the charts."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET

import pytest
import torch

from nbcompile.workshop.charts import log_log
from nbcompile.workshop.eager import bound_of, in_turns, seconds


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_a_chart_is_valid_svg_and_escapes_names() -> None:
    chart = log_log({"a < b": [(1, 10), (100, 1000)]}, x="n", y="t", points={"<script>": (10, 50)})
    root = ET.fromstring(chart._repr_svg_())
    texts = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", "<script>", "n", "t", "1", "100"} <= set(texts)
    assert "a < b" in repr(chart)


def test_a_chart_of_one_value_has_an_axis_and_zero_is_refused() -> None:
    assert "<svg" in log_log({"one": [(10, 10)]}, x="n", y="t").svg
    for line in ([(0.0, 1.0)], []):
        with pytest.raises(ValueError, match="above zero"):
            log_log({"none": line}, x="n", y="t")


@pytest.mark.skipif(torch.cuda.is_available(), reason="by the wall clock there")
def test_what_does_not_run_is_not_counted(one_thread: None) -> None:
    assert seconds(lambda: time.sleep(0.005), budget=0.01) < 0.002


def test_the_longer_of_two_takes_longer(one_thread: None) -> None:
    x = torch.rand(256, 256)
    took = in_turns({"one": lambda: x @ x, "four": lambda: [x @ x for _ in range(4)]}, budget=0.02)
    assert 2 < took["four"] / took["one"] < 8


def test_what_bounds_an_operation(one_thread: None) -> None:
    assert bound_of(torch.relu, (torch.rand(16),))[0] == "overhead"
    assert bound_of(torch.relu, (torch.rand(2**22),))[0] == "memory"
    assert bound_of(torch.mm, (torch.rand(768, 768), torch.rand(768, 768)))[0] == "arithmetic"
