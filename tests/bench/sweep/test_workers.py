"""Sweeps elsewhere: in processes of their own, in pools and on clusters, some of which lose workers."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cloudpickle")

import nbcompile
from nbcompile.errors import OptionError
from tests.bench.sweep.programs import make, make_or_die, scaled, statuses

sweep = partial(nbcompile.compare, scaled, budget=0.01, cold=False, accuracy=False)


class EngineError(Exception):
    """What ipyparallel calls the loss of an engine."""


class Losing(Executor):
    """Runs what it is given at once, but loses the worker of one size ``times`` times, and breaks for good
    after ``breaks_after`` points."""

    _max_workers = 1

    def __init__(self, lost: int = 0, times: int = 0, breaks_after: int = 100) -> None:
        self.lost, self.times, self.breaks_after = lost, times, breaks_after
        self.given: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if len(self.given) >= self.breaks_after:
            raise BrokenProcessPool("broken")
        size = args[0].point.get("n")
        self.given.append(size)
        future: Future[Any] = Future()
        if size == self.lost and self.times:
            self.times -= 1
            future.set_exception(EngineError("engine died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.mark.nightly
def test_a_point_whose_worker_is_lost_is_run_once_more() -> None:
    grid = {"backend": "eager", "n": [2, 3, 4]}
    executor = Losing(lost=3, times=1)
    assert statuses(sweep(make, grid, executor=executor)) == {2: "ok", 3: "ok", 4: "ok"}
    assert sorted(executor.given) == [2, 3, 3, 4]
    executor = Losing(lost=3, times=2)
    found = sweep(make, grid, executor=executor)
    assert statuses(found) == {2: "ok", 3: "lost", 4: "ok"}
    assert found.rows()[1]["reason"] == "its workers were lost: EngineError: engine died"
    again = Losing()
    assert set(statuses(sweep(make, grid, executor=again, resume=found)).values()) == {"ok"}
    assert again.given == [3]


def test_an_interrupt_keeps_what_the_workers_have_done() -> None:
    said: list[str] = []

    def progress(text: str) -> None:
        said.append(text)
        if len(said) == 1:
            raise KeyboardInterrupt

    grid = {"backend": "eager", "n": [2, 3, 4]}
    cut = sweep(make, grid, executor=Losing(), progress=progress)
    assert cut.interrupted and statuses(cut) == {2: "ok", 3: "ok", 4: "not run"}
    again = Losing()
    assert set(statuses(sweep(make, grid, executor=again, resume=cut)).values()) == {"ok"}
    assert again.given == [4]


def test_threads_of_one_process_take_turns() -> None:
    with ThreadPoolExecutor(2) as pool:
        found = sweep(make, {"backend": "aot_eager", "n": [2, 3, 4]}, executor=pool)
    assert set(statuses(found).values()) == {"ok"}
    assert "2 workers shared" in found.notes[0]
    assert {row["threads"] for row in found.rows()} == {1}


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(OptionError, match="isolated=True"):
        sweep(make, {}, timeout=1)
    with pytest.raises(OptionError, match="cannot be sent"):
        sweep(make, {}, isolated=True, compile=print)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_process_of_its_own_is_ended_in_time_and_measures_memory() -> None:
    found = sweep(make_or_die, {"backend": "aot_eager", "n": 14}, isolated=True, timeout=1)
    assert found.rows()[0]["status"] == "timeout" and found.rows()[0]["reason"] == "took more than 1 s"
    row = sweep(make, {"backend": "eager", "n": 1 << 18}, isolated=True).rows()[0]
    product = (1 << 18) * 8 * 4
    assert row["status"] == "ok" and product <= row["peak_bytes"] < 4 * product


@pytest.mark.nightly
@pytest.mark.slow
def test_a_pool_that_breaks_is_finished_here(tmp_path: Path) -> None:
    store = tmp_path / "sweep.jsonl"
    grid = {"backend": "eager", "n": [4, 13]}
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = sweep(make_or_die, grid, executor=pool, store=store)
    assert statuses(found) == {4: "ok", 13: "crashed"}
    assert found.rows()[1]["reason"] == "killed by SIGKILL: out of memory, most likely"
    assert any("The executor is gone (BrokenProcessPool" in note for note in found.notes)
    # What is finished is not run again: there is nobody here to run it.
    assert statuses(sweep(make_or_die, grid, store=store, executor=Losing(breaks_after=0))) == statuses(found)


def survives(executor: Executor, tmp_path: Path) -> None:
    """A sweep of which one point kills its worker, the first time."""
    grid = {"backend": "eager", "mark": str(tmp_path / "mark"), "n": [4, 13]}
    found = sweep(make_or_die, grid, executor=executor)
    assert statuses(found) == {4: "ok", 13: "ok"} and (tmp_path / "mark").exists()
    assert not any("gone" in note for note in found.notes)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_dask_cluster_survives_the_loss_of_a_worker(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": {}}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        survives(client.get_executor(), tmp_path)


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_ipyparallel_cluster_survives_the_loss_of_an_engine(tmp_path: Path) -> None:
    ipyparallel = pytest.importorskip("ipyparallel")
    with ipyparallel.Cluster(n=2, log_level=40) as client:
        survives(client[:].executor, tmp_path)
