"""Many ranks: which diverge, where their texts part, and how their files are read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

import nbcompile
import nbcompile.errors
from nbcompile.traces import ranks
from nbcompile.traces.reading.digests import same_everywhere
from nbcompile.traces.trace import Trace
from nbcompile.traces.trace_set import TraceSet
from tests.traces.programs import compilation, written

GRAPH = "class GraphModule:\n    x: cuda:{0}\n    y = x.sin()\n    return y"
GUARDS = (
    "| +- ID_MATCH: ___check_obj_id(G['torch'], 1400437326660{0}4), type=<class 'module'>\n"
    "| +- TENSOR_MATCH: check_tensor(L['x'], device={0}, size=[4])\nGuard latency = {0}.5 us"
).replace("device={0}", "device=cuda:{0}")


def files(folder: Path, count: int, odd: dict[int, dict[str, str]] | None = None) -> Path:
    for rank in range(count):
        told = {"graph": GRAPH.format(rank), "guards": GUARDS.format(rank), **(odd or {}).get(rank, {})}
        records = [compilation(0), compilation(1, **told), compilation(2)]  # type: ignore[arg-type]
        written(folder / f"dedicated_log_torch_trace_rank_{rank}_x{rank}.log", records)
    return folder


def opened(folder: Path, **options: Any) -> TraceSet:
    found = nbcompile.open(folder, **options)
    assert isinstance(found, TraceSet)
    return found


def test_what_differs_from_process_to_process_is_no_divergence(tmp_path: Path) -> None:
    traces = opened(files(tmp_path, 5))
    assert traces.divergences == () and str(traces).startswith("5 ranks: all compiled the same")


def test_the_diverging_rank_is_found_with_the_line(tmp_path: Path) -> None:
    odd = {3: {"graph": GRAPH.format(3).replace("sin", "tan")}}
    traces = opened(files(tmp_path, 5, odd))
    assert traces.diverging == ("3",)
    (found,) = traces.divergences
    assert (found.compile, found.what, found.like, found.most) == ("1/0", "graph", "0", 4)
    diff = traces.diff(found).splitlines()
    assert "-    y = x.sin()" in diff and "+    y = x.tan()" in diff and diff[0].endswith("line 3")
    assert "rank 3: graph of 1/0 (f); otherwise on 4 ranks, as on rank 0" in str(traces)
    assert "x.tan()" in traces._repr_html_()
    assert isinstance(traces[3], Trace) and traces["3"].rank == 3


def test_guards_statuses_and_what_is_missing(tmp_path: Path) -> None:
    failed: Any = {"metrics": {"fail_type": "Unsupported", "fail_reason": "no"}}
    odd = {1: {"guards": GUARDS.format(1).replace("size=[4]", "size=[5]")}, 2: failed}
    folder = files(tmp_path, 6, odd)
    written(folder / "dedicated_log_torch_trace_rank_4_x4.log", [compilation(0)])
    written(folder / "dedicated_log_torch_trace_rank_5_x5.log", ["nothing\n"])
    traces = opened(folder)
    told = {(each.ranks, each.compile, each.what, each.explained) for each in traces.divergences}
    assert (("1",), "1/0", "guards", False) in told
    assert (("2",), "1/0", "status", False) in told
    assert (("4", "5"), "1/0", "compiled", False) in told
    assert (("5",), "0/0", "compiled", False) in told
    assert traces.diverging == ("5", "4", "2", "1") or set(traces.diverging) == {"1", "2", "4", "5"}
    assert "Nothing was compiled by rank 5" in str(traces) and "1 × no line of a trace" in str(traces)


def test_groups_that_agree_are_one_line(tmp_path: Path) -> None:
    odd = {rank: {"graph": GRAPH.replace("sin", "cos")} for rank in (4, 5, 6)}
    (found,) = opened(files(tmp_path, 9, odd)).divergences
    assert found.ranks == ("4", "5", "6") and str(found).startswith("ranks 4–6: graph of 1/0")


def test_names_of_files(tmp_path: Path) -> None:
    written(tmp_path / "a" / "dedicated_log_torch_trace_rank_0_x.log", [compilation(0)])
    written(tmp_path / "b" / "dedicated_log_torch_trace_rank_0_x.log", [compilation(0)])
    packed = tmp_path / "dedicated_log_torch_trace_rank_1_x.log.gz"
    packed.write_bytes(gzip.compress("".join([compilation(0)]).encode()))
    written(tmp_path / "other.log", ["not one of torch's\n"])
    traces = opened(tmp_path)
    same = "dedicated_log_torch_trace_rank_0_x.log"
    assert set(traces) == {"1", f"a/{same}", f"b/{same}"} and traces.divergences == ()
    with pytest.raises(nbcompile.errors.TraceError, match="no rank 7"):
        traces[7]


@pytest.mark.parametrize("name", ["dynamo_cpp_guards_str", "inductor_output_code", "aot_joint_graph"])
def test_sizes_and_operators_stay(name: str) -> None:
    text = "x = f(4096, 123456, s77)\nsize=[4], 0.7071067811865476"
    assert same_everywhere(name, text) == text


# -- workers -------------------------------------------------------------------------------------------


class Losing(Executor):
    """Loses the first tasks that it is given, and breaks for good after some."""

    _max_workers = 1

    def __init__(self, lost: int = 0, breaks_after: int = 1000) -> None:
        self.lost, self.breaks_after, self.given = lost, breaks_after, 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.given >= self.breaks_after:
            raise BrokenProcessPool("broken")
        self.given += 1
        future: Future[Any] = Future()
        if self.given <= self.lost:
            future.set_exception(
                type("KilledWorker" if self.lost > 9 else "EngineError", (Exception,), {})("gone")
            )
        else:
            future.set_result(fn(*args, **kwargs))
        return future


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six files that take a task each."""
    monkeypatch.setattr(ranks, "_HERE_BYTES", 0)
    monkeypatch.setattr(ranks, "_BATCH_FILES", 1)
    return files(tmp_path, 6, {4: {"graph": "another"}})


def test_workers_read_what_is_read_here(folder: Path) -> None:
    said: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        traces = opened(folder, executor=pool, progress=said.append)
    assert traces.diverging == ("4",) and traces.notes == [] and said[-1] == "6 of 6 files"


def test_a_batch_whose_worker_is_lost_is_read_again(folder: Path) -> None:
    executor = Losing(lost=2)
    traces = opened(folder, executor=executor)
    assert executor.given == 8 and traces.diverging == ("4",) and traces.notes == []


@pytest.mark.parametrize(
    ("executor", "said"), [(Losing(breaks_after=2), "is gone"), (Losing(lost=10), "was lost")]
)
def test_what_no_worker_reads_is_read_here(folder: Path, executor: Losing, said: str) -> None:
    traces = opened(folder, executor=executor)
    assert len(traces) == 6 and traces.diverging == ("4",)
    assert len(traces.notes) == 1 and said in traces.notes[0] and said in str(traces)


def test_processes_of_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "cores", lambda: 2)
    monkeypatch.setattr(ranks, "_BATCH_FILES", 3)
    read_here: list[str] = []
    monkeypatch.setattr(ranks, "summary_of", lambda path: read_here.append(path))
    traces = opened(folder)
    assert traces.diverging == ("4",) and traces.notes == [] and read_here == []


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_dask_reads_ranks(folder: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        traces = opened(folder, executor=client.get_executor())
    assert traces.diverging == ("4",) and traces.notes == []
