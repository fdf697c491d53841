"""Kernels that wait for the ones before them themselves, so that they may be launched ahead of time."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from tests.compiler.codegen.running import aten_of
from tests.compiler.codegen.triton_running import H100, aten_of_fake, compiled, generated
from tests.nightly import few


def split_sum(x):
    return x.exp().sum(0), x * 2


@few(2)
@pytest.mark.parametrize(
    ("target", "early"),
    [("cuda:80", False), ("cuda:90", True), ("cuda:100", True), ("hip:gfx942", False)],
)
def test_every_function_waits_first_where_the_chip_can(target: str, early: bool) -> None:
    graph = aten_of(split_sum, torch.randn(4096, 64))
    _, source = generated(graph, replace(H100, target=target))
    assert len(source.launches) >= 2  # a sum takes two
    assert all(launch.early is early for launch in source.launches)
    waiting = re.findall(r"^@triton\.jit\ndef \w+\(.*\):\n    gdc_wait\(\)$", source.source, re.MULTILINE)
    assert len(waiting) == source.source.count("gdc_wait()") == (len(source.launches) if early else 0)
    for built in compiled(source, target).values():
        assembly = built.texts.get("ptx", "")
        # an access of memory before it would not be safe
        before, wait, after = assembly.partition("griddepcontrol.wait")
        assert bool(wait) is early
        assert not re.search(r"\b(ld|st)\.(global|shared)|cp\.async", before if early else "")
        assert "griddepcontrol" not in after


def test_programs_that_share_rows_are_launched_together_and_do_not_wait() -> None:
    graph = aten_of_fake(lambda x: torch.softmax(x, -1), lambda: (torch.randn(64, 65_536, device="cpu"),))
    _, source = generated(graph)
    assert [launch.together for launch in source.launches] == [True], [k.schedule for k in source.kernels]
    assert not source.launches[0].early and "gdc_wait" not in source.source
