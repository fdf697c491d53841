"""Each function has a process of its own, and what becomes of that is told."""

from __future__ import annotations

import os
import time

import pytest

from nbcompile.bench.doctor import ward
from nbcompile.bench.doctor.ward import Ward
from nbcompile.bench.processes import ProcessEndedError
from tests.bench.doctor.programs import answer, dies, fails, hangs, leaves_a_process


def is_there(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.nightly
def test_each_has_a_process_of_its_own_and_what_goes_wrong_costs_that_one() -> None:
    with Ward() as given:
        first, second = given.run(answer, 1, timeout=60), given.run(answer, 2, timeout=60)
        assert (first[1], second[1]) == (1, 2)
        assert len({first[0], second[0], os.getpid()}) == 3
        with pytest.raises(ProcessEndedError, match="ValueError: no such thing") as ended:
            given.run(fails, timeout=60)
        assert not ended.value.timed_out
        with pytest.raises(ProcessEndedError, match="SIGSEGV"):
            given.run(dies, timeout=60)
        begun = time.monotonic()
        with pytest.raises(ProcessEndedError, match="more than 1 s") as ended:
            given.run(hangs, timeout=1)
        assert ended.value.timed_out and time.monotonic() - begun < 20
        left = given.run(leaves_a_process, timeout=60)
        assert given.run(answer, 3, timeout=60)[1] == 3
        assert not is_there(left)
        server = given._server
        assert server is not None
        server.kill()
        server.wait()
        assert given.run(answer, 4, timeout=60)[1] == 4, "another is started"
        server = given._server
    assert server is not None and server.poll() is not None
    assert not os.path.exists(given._folder.name)


def test_without_a_fork_each_is_a_new_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ward.sys, "platform", "win32")
    with Ward() as given:
        pid, number = given.run(answer, 5, timeout=60)
        assert number == 5 and pid != os.getpid()
        assert given._server is None
