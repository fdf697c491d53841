"""What must not be found: whatever makes another program, and graphs that no key can tell apart. And whatever
lies in the cache, a program runs."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.testing._internal.two_tensor import TwoTensor

from nbcompile.compiler import compile_graph
from nbcompile.compiler.lower import registry
from nbcompile.compiler.runtime import bind, graph_cache
from nbcompile.compiler.runtime.c.toolchain import find_toolchain
from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.runtime.cache import key as cache_key
from nbcompile.compiler.warm import facts, hooks, kept
from nbcompile.errors import LoweringError
from nbcompile.options import Options
from nbcompile.record.recorder import Recorder
from tests.compiler.warm.helpers import FOUND, NOT_FOUND, compiled, copied, fresh, outcomes, run
from tests.nightly import few

Tensor = torch.Tensor
X = torch.linspace(-1, 1, 12).reshape(3, 4)


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    DiskCache.shared().clear()
    yield
    torch._dynamo.reset()


def points(x: Tensor) -> Tensor:
    return (x.sin() * 2 + 1).sum(0)


def said(function: Callable[..., Any], *inputs: Any, **how: Any) -> dict[str, int]:
    return compiled(function, inputs, **how)[0]


@few(1)
@pytest.mark.parametrize(
    "options",
    [
        {"fuse": False},
        {"random": "philox"},
        {"deterministic": True},
        {"threads": 3},
        {"channels_last": "always"},
    ],
    ids=str,
)
def test_another_option(options: dict[str, Any]) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    assert said(points, X, options=options) == {NOT_FOUND: 1}
    assert said(points, X, options=options) == {FOUND: 1}
    assert said(points, X) == {FOUND: 1}


@few(1)
@pytest.mark.parametrize(
    "inputs",
    [
        (X[:2].clone(),), (X.double(),), (X.t().contiguous().t(),), (X.clone().requires_grad_(),),
        (torch.cat([X, X])[1:4],),
    ],
    ids=["shape", "dtype", "strides", "gradient", "place in its memory"],
)  # fmt: skip
def test_another_input(inputs: tuple[Tensor, ...]) -> None:
    assert said(points, X.clone()) == {NOT_FOUND: 1}
    assert said(points, *inputs) == {NOT_FOUND: 1}
    assert said(points, *inputs) == {FOUND: 1}


@pytest.mark.nightly
def test_another_constant() -> None:
    for number in (2, 3.0):
        assert said(lambda x, number=number: x.sin() * number, X) == {NOT_FOUND: 1}
        assert said(lambda x, number=number: x.sin() * torch.tensor([number] * 4), X) == {NOT_FOUND: 1}


@pytest.mark.nightly
def test_inputs_that_show_one_memory() -> None:
    def overwrites(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2)
        return x + y

    def shown(places: tuple[int, int]) -> tuple[Tensor, ...]:
        memory = torch.arange(60.0)
        return tuple(memory[place : place + 12].view(3, 4) for place in places)

    for places in ((0, 24), (0, 4), (8, 12), (0, 0)):
        for expected in (NOT_FOUND, FOUND):
            fresh()
            x, y = shown(places)
            result = torch.compile(overwrites, backend="nbcompile")(x, y)
            a, b = shown(places)
            torch.testing.assert_close((result, x, y), (overwrites(a, b), a, b))
            assert outcomes() == {expected: 1}
    apart = [each.clone() for each in shown((0, 24))]
    assert said(overwrites, *apart) == {NOT_FOUND: 1}
    memory = torch.arange(4.0)
    expanded = (memory.expand(3, 4), memory)
    reason = "whole graph not looked for: it is given an expanded tensor whose memory another shows"
    assert said(lambda x, y: x.sin() + y, *expanded) == {reason: 1}


@pytest.mark.nightly
def test_another_setting_of_torch() -> None:
    def attends(x: Tensor) -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    query = torch.linspace(-1, 1, 64).reshape(1, 2, 4, 8)
    assert said(attends, query) == {NOT_FOUND: 1}
    try:
        torch.backends.cuda.enable_flash_sdp(False)
        assert said(attends, query) == {NOT_FOUND: 1}
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    with torch.no_grad():
        assert said(attends, query) == {NOT_FOUND: 1}
    assert said(attends, query) == {FOUND: 1}


@few(1)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_another_dtype_of_autocast(dtype: torch.dtype) -> None:
    def products(x: Tensor) -> Tensor:
        return x @ x.t()

    other = torch.bfloat16 if dtype is torch.float16 else torch.float16
    with torch.autocast("cpu", dtype=other):
        assert said(products, X) == {NOT_FOUND: 1}
    with torch.autocast("cpu", dtype=dtype):
        assert said(products, X) == {NOT_FOUND: 1}


def test_another_version_of_this_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    monkeypatch.setattr(facts, "code_version", lambda: "another")
    assert said(points, X) == {NOT_FOUND: 1}
    assert graph_cache.code_version() != "another"


def test_another_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    other = replace(find_toolchain(), processor="another")
    monkeypatch.setattr(facts, "find_toolchain", lambda: other)
    assert said(points, X) == {NOT_FOUND: 1}


@pytest.mark.nightly
def test_other_sizes_at_first() -> None:
    for extent in (4, 7):
        x = torch.ones(extent, 3)
        assert said(points, x, dynamic=True) == {NOT_FOUND: 1}
        assert said(points, x, dynamic=True) == {FOUND: 1}


def test_other_bounds_of_a_size() -> None:
    def narrow(most: int) -> dict[str, int]:
        fresh()
        x = torch.ones(6, 3)
        torch._dynamo.mark_dynamic(x, 0, min=2, max=most)
        torch.testing.assert_close(torch.compile(points, backend="nbcompile")(x), points(x))
        return outcomes()

    assert [narrow(8), narrow(8), narrow(9)] == [{NOT_FOUND: 1}, {FOUND: 1}, {NOT_FOUND: 1}]


def own_operator() -> Any:
    if not hasattr(torch.ops.nbcompile_warm, "own"):
        made = torch.library.custom_op("nbcompile_warm::own", mutates_args=())(_own)
        made.register_fake(lambda x: torch.empty_like(x))
    return torch.ops.nbcompile_warm.own


def _own(x: Tensor) -> Tensor:
    return x + 1


def looked_for_not(reason: str) -> dict[str, int]:
    return {f"whole graph not looked for: {reason}": 1}


def test_what_no_key_tells() -> None:
    own = own_operator()
    for _ in range(2):
        reason = "it calls an operator of nbcompile_warm"
        assert said(lambda x: own(x) * 2, X) == looked_for_not(reason)
        fresh()
        two = TwoTensor(X.clone(), X.clone())
        torch.compile(points, backend="nbcompile")(two)
        assert outcomes() == looked_for_not("it is given a TwoTensor")
        branch = lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))
        assert said(branch, X) == looked_for_not("it calls cond")


@pytest.mark.usefixtures("sizes_of_data_captured")
def test_sizes_of_data() -> None:
    for _ in range(2):
        assert said(lambda x: x[x > 0].sin(), X) == looked_for_not("a size depends on data")


def shows_a_part(x: Tensor, n: Tensor, w: Tensor) -> Tensor:
    x += w
    return x[: n.shape[0]]


@few(1)
@pytest.mark.parametrize("grad", [False, True])
def test_views_that_are_made_after_the_call(grad: bool) -> None:
    """Nothing of that is kept with a graph: found alone, it would show the wrong elements."""
    for _ in range(2):
        x, w = torch.linspace(-1, 1, 24).reshape(6, 4).t(), torch.tensor(1.0, requires_grad=grad)
        assert FOUND not in said(shows_a_part, x, torch.ones(2), w, dynamic=True)


def copies_before(x: Tensor, w: Tensor) -> Tensor:
    kept = x.flatten()
    x += w
    return kept


@pytest.mark.nightly
def test_a_copy_of_what_is_overwritten_is_found_as_it_was_made() -> None:
    gaps = torch.arange(40.0).as_strided((2, 2, 1, 1), (12, 4, 2, 1), 2)
    for _ in range(3):
        said(
            copies_before,
            gaps.clone().as_strided((2, 2, 1, 1), (2, 1, 1, 1)),
            torch.tensor(1.0, requires_grad=True),
        )
        said(copies_before, gaps, torch.tensor(1.0, requires_grad=True))


def test_a_parameter_that_is_a_subclass() -> None:
    for _ in range(2):
        fresh()
        module = torch.nn.Linear(4, 4)
        module.weight = torch.nn.Parameter(TwoTensor(module.weight.detach(), module.weight.detach()))
        torch.compile(module, backend="nbcompile")(X)
        assert list(outcomes()) == ["whole graph not looked for: it is given a TwoTensor"]


@few(2)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"cache": False}, "no cache is wanted"), ({"verify": True}, "its passes are to run"),
        ({"target": "cuda:90", "interpret": True}, "it is for a GPU"),
        ({"target": "cuda:90"}, "it is for a GPU"),
    ],
    ids=str,
)  # fmt: skip
def test_an_option_that_wants_the_passes(options: dict[str, Any], reason: str) -> None:
    for _ in range(2):
        assert said(points, X, options=options) == looked_for_not(reason)


@pytest.mark.nightly
def test_torchs_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    with torch.compiler.config.patch(force_disable_caches=True):
        assert said(points, X) == looked_for_not("no cache is wanted")
    with torch._functorch.config.patch(enable_autograd_cache=False):
        assert said(points, X) == looked_for_not("torch makes no key of it")
    with torch._inductor.config.patch(fx_graph_cache=False):
        assert said(points, X) == looked_for_not("torch makes no key of it")
    assert said(points, X) == {FOUND: 1}


def test_a_record_is_whole() -> None:
    """With a recorder every stage runs, whatever the cache holds."""
    made = []
    for _ in range(2):
        assert said(points, X) in ({NOT_FOUND: 1}, {FOUND: 1})
        fresh()
        recorder = Recorder(Options())
        torch.compile(points, backend="nbcompile", options={"recorder": recorder})(X)
        assert outcomes() == {}
        made.append(recorder.compilation())
    for one in made:
        assert {graph.stage for graph in one.graphs} == {"fx", "forward", "loops", "fused"}
        assert one.kernels


def test_a_lowering_of_the_programs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    entry = registry.Lowering("nbcompile_warm::other", lambda b, x: x)
    monkeypatch.setitem(registry._registry.named, "nbcompile_warm.other", entry)
    assert said(points, X) == looked_for_not("operators have lowerings of the program's own")


def entries() -> list[Path]:
    return sorted(DiskCache.shared().root.glob(f"*/*/{kept.FILE}"))


def damage_by_cutting(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:100])


def damage_by_another_value(file: Path) -> None:
    _whole(file, pickle.dumps({"not": "an entry"}))


def damage_by_no_pickle(file: Path) -> None:
    _whole(file, b"\x80\x05nonsense")


def damage_by_another_class(file: Path) -> None:
    _whole(file, b"\x80\x04\x8c\x08nowhere_\x8c\x05Thing\x93.")


def _whole(file: Path, content: bytes) -> None:
    """An entry that agrees with its sums, and holds something else."""
    key = file.parent.name
    DiskCache.shared().remove(key)
    DiskCache.shared().put(key, {kept.FILE: content})


def lose_the_library(file: Path) -> None:
    for library in DiskCache.shared().root.glob("*/*/kernel.so"):
        DiskCache.shared().remove(library.parent.name)


@few(1)
@pytest.mark.parametrize(
    "damage",
    [
        damage_by_cutting, damage_by_another_value, damage_by_no_pickle, damage_by_another_class,
        lose_the_library,
    ],
)  # fmt: skip
@pytest.mark.parametrize("grad", [False, True])
def test_what_is_damaged_is_made_anew(damage: Callable[[Path], None], grad: bool) -> None:
    x = X.clone().requires_grad_(grad)
    assert said(points, x) == {NOT_FOUND: 1}
    (file,) = entries()
    damage(file)
    assert said(points, x) == {NOT_FOUND: 1}
    assert said(points, x) == {FOUND: 1}


@pytest.mark.parametrize("files", [{"kernel.so": b"\x7fELF nonsense"}, {"kernel.c": b"int x;"}], ids=list)
def test_a_library_that_is_none(files: dict[str, bytes]) -> None:
    assert said(points, X) == {NOT_FOUND: 1}
    half = pickle.loads(entries()[0].read_bytes()).compiled_fw
    key = cache_key("no library", *files)
    DiskCache.shared().put(key, files)
    with pytest.raises(LookupError):
        replace(half.kept, code=replace(half.kept.code, library=key)).bound(lambda: None)


def test_what_is_left_to_eager_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise LoweringError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(compile_graph, "source_of", fails)
        for _ in range(2):
            assert said(points, X) == {NOT_FOUND: 1}
    assert not entries()
    assert said(points, X) == {NOT_FOUND: 1}


def test_code_that_fails_when_run_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> dict[str, Any]:
        raise ValueError("not today")

    with monkeypatch.context() as patched:
        patched.setattr(bind, "_scope", fails)
        assert said(points, X) == {NOT_FOUND: 1}, "and ATen ran it"
    assert not entries()


def test_a_first_call_that_fails_is_forgotten() -> None:
    """What is found has no graph that ATen could run in its place: the next process has."""
    look = lambda x, i: torch.nn.functional.embedding(i, x).sin()
    assert said(look, X.clone(), torch.tensor([0, 2])) == {NOT_FOUND: 1}
    fresh()
    with pytest.raises(IndexError):
        torch.compile(look, backend="nbcompile")(X.clone(), torch.tensor([0, 9]))
    assert outcomes() == {FOUND: 1} and not entries()
    assert said(look, X.clone(), torch.tensor([0, 2])) == {NOT_FOUND: 1}


def test_a_setting_that_is_changed_before_backward() -> None:
    fresh()
    x = X.clone().requires_grad_()
    result = torch.compile(points, backend="nbcompile")(x)
    with torch._functorch.config.patch(bundled_autograd_cache=True):
        result.sum().backward()
    assert x.grad is not None and not entries()


def test_a_torch_without_the_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "install", lambda: "another torch")
    for _ in range(2):
        assert said(points, X.clone().requires_grad_()) == looked_for_not("another torch")


def test_without_a_c_compiler(no_compiler: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "nbcompile"):
        (reason,) = said(points, X)
    assert "no C compiler" in reason
    assert "not looked for" in caplog.text


def test_inductors_entries_stay_torchs_own() -> None:
    """What has no key of ours goes to torch's functions as it is."""
    asked = []

    def lookup(key: str, local: bool, remote: bool, args: Any, cache_info: Any, aot_config: Any) -> str:
        asked.append(key)
        return "torch's"

    def save(key: str, entry: Any, remote: bool) -> None:
        asked.append(key)

    assert hooks._lookup(lookup, None)("a1", True, False, [], {}, None) == "torch's"
    hooks._save(save)("a2", object(), remote=False)
    assert asked == ["a1", "a2"]
    assert hooks._key(lambda *_: ("a3", ["told"]))(None, [], None) == ("a3", ["told"])


def test_the_counters_of_aotautograd() -> None:
    said(points, X)
    assert (
        counters["aot_autograd"]["autograd_cache_miss"]
        == counters["aot_autograd"]["autograd_cache_saved"]
        == 1
    )
    said(points, X)
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1


def test_two_threads_find_it() -> None:
    import threading

    assert said(points, X) == {NOT_FOUND: 1}
    fresh()
    results: list[dict[str, Any]] = []
    compiled_once = torch.compile(points, backend="nbcompile")
    threads = [
        threading.Thread(target=lambda: results.append(run(compiled_once, copied([X])))) for _ in range(3)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(results) == 3
    torch.testing.assert_close(results[0], run(points, copied([X])))
