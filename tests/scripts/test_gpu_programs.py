"""The GPU benchmark's programs: each runs on the CPU at tiny sizes, compiles for a chip that is not here,
and judges what it measured rightly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "scripts" / "gpu"
sys.path.insert(0, str(FOLDER))

import contestants  # noqa: E402
import gpu_timing  # noqa: E402
import kernel_list  # noqa: E402
import kernels  # noqa: E402
import linear_cross_entropy  # noqa: E402
import models  # noqa: E402
import region_capture  # noqa: E402
import region_extract  # noqa: E402
import regions  # noqa: E402
import runner  # noqa: E402
import sweep  # noqa: E402
import table  # noqa: E402
from corpus_nets import Net, Of  # noqa: E402
from items import Maker  # noqa: E402

import corpus  # noqa: E402
from tests.nightly import few  # noqa: E402

ON_CPU = ["--device", "cpu", "--tiny", "--quick", "--no-cold"]


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    for name in contestants.CACHE_VARIABLES:  # the scripts move them: put them back afterwards
        monkeypatch.setenv(name, str(tmp_path / name))
    torch._dynamo.reset()


def _records(kind: str, tmp_path: Path) -> list[dict[str, Any]]:
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


# -- kernels -----------------------------------------------------------------------------------


@few(8)
@pytest.mark.parametrize("kernel", kernel_list.KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_runs_and_is_close_to_float64(kernel: kernel_list.Kernel) -> None:
    args = kernels.arguments_of(kernel, "cpu", True)
    reference = None if kernel.error else kernels.reference_of(kernel, args)
    eager = contestants.Contestant("eager", kernel.fn)
    calls, error, fewest = kernels.checked(kernel, eager, [args], reference)
    assert error < 0.03 and fewest >= sum(each.nbytes for each in args) and len(calls) == 1
    calls[0]()


@few(1)
@pytest.mark.parametrize("kernel", kernel_list.KERNELS, ids=lambda kernel: kernel.name)
def test_kernel_compiles_for_a_chip_that_is_not_here(kernel: kernel_list.Kernel) -> None:
    pytest.importorskip("triton")
    fn, first = kernels.program(kernel.name, "cpu", True)
    contestant = contestants.compile_with("nbcompile", fn, target="cuda:90")
    first(contestant.fn)
    made = contestant.recorder.compilation()
    assert made.kernels and {each.target for each in made.kernels} == {"cuda:90"}
    assert contestant.facts()["fallbacks"] == 0
    assert "which is not here" in contestant.why_eager()  # its times would not count


def test_dropout_is_checked_with_the_mask_that_the_result_shows() -> None:
    make = Maker("cpu", seed=3)
    x, residual = make.randn(64, 512).abs() + 8, make.randn(64, 512).clamp(-3, 3)
    args = (x, residual, make.rand(512, low=0.5), make.randn(512))
    good = kernel_list.dropout_add_norm(*args)
    assert kernel_list._dropout_error([good], args) < 1e-5
    assert kernel_list._dropout_error([good * 1.01], args) > 5e-3
    too_many = torch.nn.functional.layer_norm(
        torch.nn.functional.dropout(x, 0.2) + residual, args[2].shape, args[2], args[3]
    )
    assert kernel_list._dropout_error([too_many], args) == float("inf")


def test_kernels_script_writes_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = ["--only", "swiglu", "softmax backward", "adamw"]
    assert kernels.main([*ON_CPU, *only, "--contestants", "eager", "nbcompile"]) == 0
    steady = _records("steady", tmp_path)
    assert [len(record["times"]) for record in steady] == [2, 2, 2]
    assert all(record["errors"]["nbcompile"] < 0.01 and record["bytes"] > 0 for record in steady)
    said = capsys.readouterr().out
    assert "tiny sizes: the figures mean nothing" in said and "| swiglu bf16 16k×8k |" in said


# -- models ------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_models_script_measures_both_parts(tmp_path: Path) -> None:
    arguments = ["--only", "GPT-2", "small net", "--contestants", "eager", "nbcompile"]
    assert models.main([*ON_CPU, *arguments]) == 0
    steady = {record["item"]: record for record in _records("steady", tmp_path)}
    assert set(steady) == {"GPT-2 124M, training step", "GPT-2 124M, forward", "small net, forward"}
    assert (
        steady["small net, forward"]["small"] and "nbcompile-graphs" in steady["small net, forward"]["times"]
    )
    step = steady["GPT-2 124M, training step"]
    assert step["errors"]["nbcompile"] < 2 * step["errors"]["eager"] and step["compile"]["nbcompile"] > 0


def test_a_model_that_draws_numbers_has_no_reference() -> None:
    module, args, train = models.build("TransformerLayer 512×8, training step", "cpu", True)
    assert train and models.reference_of(module, args, True) is None
    module, args, train = models.build("TransformerLayer 512×8, forward", "cpu", True)
    assert not train and models.reference_of(module, args, False) is not None


@pytest.mark.nightly
def test_linear_cross_entropy_script(tmp_path: Path) -> None:
    assert linear_cross_entropy.main([*ON_CPU, "--contestants", "eager", "nbcompile"]) == 0
    (record,) = _records("steady", tmp_path)
    assert set(record["times"]) == {"eager", "nbcompile"} and record["errors"]["nbcompile"] < 0.02


# -- the corpus --------------------------------------------------------------------------------


def test_corpus_holds_enough_regions_of_every_kind() -> None:
    found = regions.load()
    assert len(found) >= 150 and len({region.id for region in found}) == len(found)
    assert regions.CORPUS.stat().st_size < 1 << 20
    text = "\n".join(region.text() for region in found)
    for name in (
        "native_layer_norm_backward", "native_batch_norm_backward", "native_group_norm", "native_dropout",
        "embedding_dense_backward", "index_put", "scatter_add", "_softmax_backward_data", "_log_softmax",
        "gelu_backward", "cat", "roll", "permute",
    ):  # fmt: skip
        assert f"aten.{name}." in text, name
    last = [
        shape for region in found for *_, shape, strides, _ in region.inputs if strides and strides[1] == 1
    ]
    assert any(len(shape) == 4 for shape in last), "channels-last reads"
    assert all(region.bytes >= region_extract.LEAST_BYTES for region in found)


def test_the_second_corpus_has_nothing_of_the_first() -> None:
    found = regions.load(regions.SECOND)
    assert len(found) >= 600 and len({region.id for region in found}) == len(found)
    assert regions.SECOND.stat().st_size < 1 << 20
    assert len({region.source.split(",")[0] for region in found}) >= 40
    structures = {corpus.structure_of(region) for region in found}
    assert len(structures) == len(found)
    assert not structures & {corpus.structure_of(region) for region in regions.load()}


@pytest.mark.parametrize("path", [regions.CORPUS, regions.SECOND], ids=lambda path: path.stem)
@pytest.mark.parametrize("start", range(3))
def test_corpus_regions_are_programs(start: int, path: Path) -> None:
    chosen = regions.load(path)[start::24]
    assert {region.id: why for region in chosen if (why := corpus.problem(region))} == {}


def test_region_is_the_program_of_its_group() -> None:
    def loss(net: Any, x: torch.Tensor) -> torch.Tensor:
        return (torch.softmax(net.linear(x).transpose(0, 1), dim=0) * 2).sum(0).square().mean()

    net = Net("one", lambda: Of(loss, linear=torch.nn.Linear(512, 1024)), ((2048, 512, "float"),), ("f32",))
    (forward, backward) = region_capture.graphs_of_net(net, "f32")
    assert (forward.stage, backward.stage) == ("forward", "backward")
    found = list(region_extract.regions_of(forward, "one"))
    assert found and "aten._softmax.default" in found[0].text()
    product = next(each for each in found[0].inputs if each[2] == [2048, 1024])
    assert product[3] is None  # the product itself is read, its transpose is part of the region
    assert "aten.permute.default" in found[0].text()
    x = found[0].arguments("cpu")
    results = found[0].function("cpu")(*x)
    wanted = torch.softmax(x[0].T, dim=0)
    assert any(each.shape == wanted.shape and torch.allclose(each, wanted) for each in results)


def test_region_reads_only_what_its_views_show() -> None:
    def loss(net: Any, x: torch.Tensor) -> torch.Tensor:
        one, _, three = net.linear(x).chunk(3, dim=-1)
        return torch.sigmoid(one) * torch.tanh(three)

    net = Net("part", lambda: Of(loss, linear=torch.nn.Linear(256, 3072)), ((1024, 256, "float"),))
    (graph,) = region_capture.graphs_of_net(net, "eval:f32")
    (region,) = region_extract.regions_of(graph, "part")
    assert region.bytes == 3 * 1024 * 1024 * 4  # two parts of three read, one result written


def test_corpus_script_runs_regions(tmp_path: Path) -> None:
    arguments = ["run", *ON_CPU, "--every", "12", "--contestants", "nbcompile"]
    assert corpus.main(arguments) == 0
    steady = _records("steady", tmp_path)
    assert steady and all(record["times"]["nbcompile"]["median"] > 0 for record in steady)
    assert all(record["compile"]["nbcompile"] > 0 for record in steady)
    assert not _records("failure", tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("what", "shape", "code"),
    [
        ("points", [64, 300], "aten.exp.default(a0)"),
        ("square", [96, 80], "aten.clone.default(aten.t.default(a0), memory_format=torch.contiguous_format)"),
        ("held", [40, 512], "aten._softmax.default(a0, 1, False)"),
        ("held, scan", [40, 512], "aten.cumsum.default(a0, 1)"),
        ("walked", [2, 20_000], "aten.sum.dim_IntList(a0, [1])"),
        ("walked, columns", [700, 64], "aten.amax.default(a0, [0])"),
    ],
)
def test_sweep_times_alternatives(
    what: str, shape: list[int], code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton")
    inputs = (("a0", "f32", shape, None, None),)
    file = tmp_path / "regions.jsonl"
    regions.save([regions.Region("one", what, "a test", 1 << 20, inputs, (f"v0 = {code}",), ("v0",))], file)
    assert sweep.main([*ON_CPU, "--regions", str(file), "--most", "2"]) == 0
    (record,) = _records("sweep", tmp_path)
    (plan,) = record["plans"]
    assert what.partition(",")[0] in plan and record["times"].keys() > {"default"}
    assert all(time > 0 for time in record["times"].values())
    assert not _records("failure", tmp_path)
    assert "1 regions" in capsys.readouterr().out


@pytest.mark.nightly
def test_sweep_refuses_an_alternative_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    inputs = (("a0", "f32", [40, 512], None, None),)
    code = ("v0 = aten._softmax.default(a0, 1, False)",)
    file = tmp_path / "regions.jsonl"
    regions.save([regions.Region("one", "softmax", "a test", 1 << 20, inputs, code, ("v0",))], file)
    errors = iter((0.0, 0.5))
    monkeypatch.setattr(sweep, "relative_error", lambda got, reference: next(errors))
    assert sweep.main([*ON_CPU, "--regions", str(file), "--most", "2"]) == 0
    (record,) = _records("sweep", tmp_path)
    assert len(record["times"]) == 2
    (failure,) = _records("failure", tmp_path)
    assert "off the default's" in failure["reason"]


def test_inputs_of_a_region_stay_within_what_they_index() -> None:
    code = ("v0 = aten.embedding.default(a0, a1)",)
    inputs = (("a0", "f32", [7, 4], [1, 7], None), ("a1", "i64", [100], None, 7))
    region = regions.Region("one", "embedding", "a test", 0, inputs, code, ("v0",))
    table_of, ids = region.arguments("cpu")
    assert table_of.stride() == (1, 7) and ids.max() < 7
    assert region.function("cpu")(table_of, ids)[0].shape == (100, 4)
    assert float(region.arguments("cpu", positive=True)[0].min()) >= 0.5


# -- what they share ---------------------------------------------------------------------------


def test_errors_are_relative_and_nan_stays() -> None:
    one = torch.tensor([3.0, 4.0])
    assert gpu_timing.relative_error([one * 1.1], [one]) == pytest.approx(0.1)
    assert gpu_timing.relative_error([one, one * float("nan")], [one, one]) != 0
    worst = gpu_timing.relative_error([one * float("nan")], [one])
    assert worst != worst
    ids = torch.tensor([1, 2])
    assert gpu_timing.relative_error([ids], [ids]) == 0
    assert gpu_timing.relative_error([ids + 1], [ids]) == float("inf")


def test_a_failure_is_written_and_the_rest_goes_on(tmp_path: Path) -> None:
    run = runner.start("kernels", "", [*ON_CPU, "--budget", "5"], ("eager",))
    assert run.attempt("one", "nbcompile", lambda: 1 // 0) is None
    assert run.attempt("one", "eager", lambda: 3) == 3
    (failure,) = _records("failure", tmp_path)
    assert failure["reason"].startswith("ZeroDivisionError") and run.failures == 1
    run.arguments.budget = 0.0
    assert list(run.items(["one", "two"])) == []
    assert _records("left-out", tmp_path)[0]["items"] == ["one", "two"]


def test_in_turn_goes_round_and_broadcasts_count_once() -> None:
    seen: list[int] = []
    call = gpu_timing.in_turn([lambda n=n: seen.append(n) for n in range(3)])
    for _ in range(4):
        call()
    assert sorted(set(seen)) == [0, 1, 2] and len(seen) == 4
    assert gpu_timing.nbytes([torch.zeros(4, 1).expand(4, 8)]) == 16


def _times(**medians: float) -> dict[str, dict[str, float]]:
    return {
        name.replace("_", "-"): {"median": each, "p10": each, "p90": each, "samples": 5}
        for name, each in medians.items()
    }


def test_table_says_met_and_not_met() -> None:
    kernel = {
        "script": "kernels",
        "kind": "steady",
        "limit": 1e-3,
        "bytes": 1,
        "goal": 0.9,
        "backward": False,
    }
    records: list[dict[str, Any]] = [
        {**kernel, "item": "fast", "times": _times(nbcompile=1.05e-3, inductor=2e-3, inductor_max=1.5e-3),
         "errors": {"nbcompile": 1e-7, "inductor": 1e-7}},
        {**kernel, "item": "slow", "times": _times(nbcompile=2e-3, inductor=1.9e-3),
         "errors": {"nbcompile": 5e-7, "inductor": 1e-7}},
        {"script": "kernels", "kind": "cold", "item": "fast", "contestant": "nbcompile", "seconds": 0.5},
        {"script": "kernels", "kind": "cold", "item": "fast", "contestant": "inductor", "seconds": 2.0},
        {"script": "models", "kind": "failure", "item": "m", "contestant": "nbcompile", "reason": "broke"},
    ]  # fmt: skip
    said = table.report(records)
    assert "| fast | 0.50 (2 ± 0 ms) | 0.67 (1.5 ± 0 ms) | 0.95 (1.05 ± 0 ms) | 0.90 | met |" in said
    assert "worst against the better Inductor (slow): 0.95 over 2 (goal at least 0.98): **not met**" in said
    assert "errors over twice Inductor's against float64: 1 of 2: slow" in said
    assert "geomean: 0.25 over 1 (goal at most 0.5): met" in said
    assert "models: m: nbcompile: broke" in said
    assert "broke" not in table.report(
        [*records, {"script": "models", "kind": "steady", "item": "m", "times": _times(nbcompile=1.0)}]
    )


def test_table_of_corpus_counts_those_far_from_the_limit() -> None:
    def row(item: str, share: float) -> dict[str, Any]:
        times = _times(nbcompile=share * 1e-4, inductor=2e-4)
        return {"script": "corpus", "kind": "steady", "item": item, "times": times, "limit": 1e-4,
                "errors": {}, "compile": {"nbcompile": 0.1, "inductor": 0.5}}  # fmt: skip

    said = table.report([row("a", 1.1), row("b", 1.2), row("c", 3.5)])
    assert "nbcompile: p90 3.50, above 3: 1: **not met**" in said and "c 3.50" in said
    assert "inductor: times the byte limit, geomean 2.00 over 3" in said
    assert "geomean: 0.20 over 3 (goal at most 0.5): met" in said
