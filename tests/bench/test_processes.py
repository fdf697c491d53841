"""A function in a process of its own: its answer, and each way not to have one."""

from __future__ import annotations

import math
import os
import subprocess
import time

import pytest

from nbcompile.bench.processes import ProcessEndedError, in_process


def test_the_answer_comes_back_and_so_does_the_environment() -> None:
    assert in_process(math.hypot, 3.0, 4.0) == 5.0
    assert in_process(os.getenv, "OF_THE_CHILD", environment={"OF_THE_CHILD": "yes"}) == "yes"
    assert "OF_THE_CHILD" not in os.environ


def test_how_a_process_ended_is_told() -> None:
    with pytest.raises(ProcessEndedError, match="ValueError: math domain error") as raised:
        in_process(math.sqrt, -1.0)
    assert not raised.value.timed_out
    with pytest.raises(ProcessEndedError, match="killed by SIGABRT"):
        in_process(os.abort)
    with pytest.raises(ProcessEndedError, match=r"took more than 0\.3 s") as late:
        in_process(time.sleep, 30.0, timeout=0.3)
    assert late.value.timed_out


def test_what_it_started_ends_with_it() -> None:
    with pytest.raises(ProcessEndedError):
        in_process(subprocess.run, ["sleep", "31.4159"], timeout=1.0)
    end = time.monotonic() + 10
    while "31.4159" in (
        seen := subprocess.run(["ps", "ax"], capture_output=True, text=True, check=True).stdout
    ):
        assert time.monotonic() < end, seen
        time.sleep(0.1)
