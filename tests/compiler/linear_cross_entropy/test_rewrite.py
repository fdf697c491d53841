"""linear + cross_entropy in chunks: which graphs are rewritten, and that the numbers stay what they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import nbcompile
from nbcompile.api import Compiled
from nbcompile.compiler.linear_cross_entropy import rewrite
from nbcompile.errors import OptionError
from nbcompile.options import Options
from tests.compiler.capture.helpers import cell
from tests.nightly import few

B, T, H, V = 3, 5, 16, 37


def _inputs(dtype: torch.dtype = torch.float32, seed: int = 0) -> tuple[torch.Tensor, ...]:
    """x [B, T, H], weight [V, H], bias [V], target [B, T] with some ignored."""
    generator = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((B, T, H), (V, H), (V,))
    )
    target = torch.randint(0, V, (B, T), generator=generator)
    target[0, 1] = target[2, 3] = -100
    return (*(item.to(dtype).requires_grad_() for item in (x, weight, bias)), target)


def _with_gradients(
    fn: Callable[..., Any], inputs: tuple[torch.Tensor, ...], by: float = 1.0
) -> list[torch.Tensor]:
    """The loss and the gradients that it has, as copies."""
    leaves = [item.detach().clone().requires_grad_(item.requires_grad) for item in inputs]
    loss = fn(*leaves)
    (loss * by).backward()
    return [loss.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def _compiled(fn: Callable[..., Any], **options: Any) -> Compiled:
    return nbcompile.compile(fn, options={"linear_cross_entropy": "always", "verify": True, **options})


def _is_rewritten(compiled: Compiled) -> bool:
    texts = [graph.text for graph in compiled.compilation.graphs if graph.stage == "forward"]
    assert texts
    return any("nbcompile.linear_cross_entropy" in text for text in texts)


def _plain(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).view(-1, V), t.view(-1))


def _biased_sum(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w, b).flatten(0, 1).float(), t.flatten(), reduction="sum")


def _two_dimensions(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x[1], w, bias=b), t[1], ignore_index=3)


def _shifted(x: Any, w: Any, b: Any, t: Any) -> Any:
    logits = F.linear(x, w).float()
    shifted = logits[..., :-1, :].contiguous()
    return F.cross_entropy(shifted.view(-1, logits.size(-1)), t[..., 1:].contiguous().view(-1))


def _sliced_rows(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w)[:, 2:][1].reshape([-1, V]), t[1, 2:])


def _padded_targets(x: Any, w: Any, b: Any, t: Any) -> Any:
    logits = F.linear(x, w).float()
    target = F.pad(t, (0, 1), value=-100)[..., 1:].contiguous().view(-1)
    return F.cross_entropy(logits.view(-1, V), target.to(logits.device), ignore_index=-100)


def _product(x: Any, w: Any, b: Any, t: Any) -> Any:
    return torch.nn.CrossEntropyLoss(label_smoothing=0.1)((x @ w.T).view(-1, V), t.view(-1))


def _turned(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(torch.matmul(x, w.t()).transpose(1, 2), t)


def _permuted(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w, b).permute(0, 2, 1), t, None, None, -100, None, "sum", 0.2)


def _under_autocast(x: Any, w: Any, b: Any, t: Any) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        logits = F.linear(x, w, b)
    return F.cross_entropy(logits.view(-1, V).float(), t.view(-1))


def _one_of_two(x: Any, w: Any, b: Any, t: Any) -> Any:
    return _plain(x, w, b, t) + 0.5 * F.linear(x, w).logsumexp(-1).mean()


def _tied(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(F.embedding(t.clamp(min=0), w) + x, w).view(-1, V), t.view(-1))


TAKEN = [
    _plain, _biased_sum, _two_dimensions, _shifted, _sliced_rows, _padded_targets, _product, _turned,
    _permuted, _under_autocast, _one_of_two, _tied,
]  # fmt: skip


@few(3)
@pytest.mark.parametrize("fn", TAKEN, ids=lambda fn: fn.__name__)
def test_the_same_numbers(fn: Callable[..., Any]) -> None:
    inputs = _inputs()
    compiled = _compiled(fn)
    got, wanted = _with_gradients(compiled, inputs, 0.25), _with_gradients(fn, inputs, 0.25)
    assert compiled.ran_compiled, compiled.eager_reason
    assert _is_rewritten(compiled)
    assert len(got) == len(wanted) >= 3
    precision = 1e-2 if fn is _under_autocast else 1e-5
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=precision, atol=precision)


@pytest.mark.parametrize("chunks", [2, 8])
def test_bfloat16_is_no_less_exact_than_eager(chunks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, hidden, classes = 1024, 64, 500
    x, w = (torch.randn(n, hidden, generator=generator).bfloat16().requires_grad_() for n in (rows, classes))
    t = torch.randint(0, classes, (rows,), generator=generator)

    def loss(x: Any, w: Any, t: Any) -> Any:
        return F.cross_entropy(F.linear(x, w), t)

    monkeypatch.setattr(rewrite, "LEAST_BYTES", rows * classes * 2 // chunks)
    monkeypatch.setattr(rewrite, "LEAST_ROWS", 1)
    compiled = _compiled(loss)
    got, eager = _with_gradients(compiled, (x, w, t)), _with_gradients(loss, (x, w, t))
    assert f"in {chunks} chunks" in compiled.compilation.notes[0]
    exact = _with_gradients(
        loss, (x.detach().double().requires_grad_(), w.detach().double().requires_grad_(), t)
    )
    for ours, its, true in zip(got, eager, exact, strict=True):
        assert (ours - true).norm() <= 1.2 * (its - true).norm() + 1e-9 * true.norm()


def _read_elsewhere(x: Any, w: Any, b: Any, t: Any) -> Any:
    logits = F.linear(x, w).view(-1, V)
    return F.cross_entropy(logits, t.view(-1)) + logits.sum() * 0


def _class_weights(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).view(-1, V), t.view(-1), weight=b.detach().abs())


def _no_reduction(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).view(-1, V), t.view(-1), reduction="none").sum()


def _soft_targets(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).view(-1, V), torch.full((B * T, V), 1 / V))


def _rows_as_classes(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w), t[:, :1].clamp(min=0).expand(B, V) % T)


def _regrouped(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).reshape(V, B * T).t(), t.view(-1))


def _some_classes(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w)[..., :30].reshape(-1, 30), t.view(-1) % 30)


def _rounded(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).bfloat16().view(-1, V), t.view(-1)).float()


def _rounded_by_to(x: Any, w: Any, b: Any, t: Any) -> Any:
    return F.cross_entropy(F.linear(x, w).to(torch.bfloat16).view(-1, V), t.view(-1)).float()


def _changed_on_the_way(x: Any, w: Any, b: Any, t: Any) -> Any:
    y = x * 1
    logits = F.linear(y, w.detach()).view(-1, V)
    y.mul_(2)
    return F.cross_entropy(logits, t.view(-1)) + y.sum()


def _masked_in_place(x: Any, w: Any, b: Any, t: Any) -> Any:
    logits = F.linear(x, w).view(-1, V)
    logits[:, 3] = -1.0
    return F.cross_entropy(logits, t.view(-1))


def _no_gradient_of_the_logits(x: Any, w: Any, b: Any, t: Any) -> Any:
    with torch.no_grad():
        logits = F.linear(x, w).view(-1, V)
    return F.cross_entropy(logits, t.view(-1)) + x.sum() + w.sum()


LEFT = {
    _read_elsewhere: "the logits are read elsewhere too",
    _class_weights: "cross_entropy has weight",
    _no_reduction: "reduction is none",
    _soft_targets: "its targets are not class numbers",
    _rows_as_classes: "the classes are not the last axis",
    _some_classes: "getitem stands between",
    _rounded_by_to: "to rounds the logits",
    _changed_on_the_way: "mul_ stands between, and may change a tensor",
    _masked_in_place: "the logits are read elsewhere too",
    _no_gradient_of_the_logits: "_set_grad_enabled stands between",
    _regrouped: "",  # no note: t() is nothing that stands between a linear layer and its loss
    _rounded: "",
}


@few(2)
@pytest.mark.parametrize("fn", LEFT, ids=lambda fn: fn.__name__)
def test_left_alone(fn: Callable[..., Any]) -> None:
    inputs = _inputs()
    compiled = _compiled(fn)
    got, wanted = _with_gradients(compiled, inputs), _with_gradients(fn, inputs)
    assert not _is_rewritten(compiled)
    notes = [note for note in compiled.compilation.notes if "left as it is" in note]
    assert LEFT[fn] in "".join(notes) and bool(notes) == bool(LEFT[fn])
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-2)


@few(1)
@pytest.mark.parametrize(
    "between",
    [torch.tanh, lambda z: z * 0.5, lambda z: z.softmax(-1), torch.detach, lambda z: z.half().float()],
)
def test_other_operations_between(between: Callable[..., Any]) -> None:
    compiled = _compiled(lambda x, w, b, t: F.cross_entropy(between(F.linear(x, w)).view(-1, V), t.view(-1)))
    compiled(*_inputs())
    assert not _is_rewritten(compiled)


def test_float16_is_taken_only_without_gradients() -> None:
    x, w, b, t = _inputs(torch.float16)
    training = _compiled(_plain)
    training(x, w, b, t)
    assert not _is_rewritten(training)
    inference = _compiled(_plain)
    with torch.no_grad():
        got = inference(x, w, b, t)
        torch.testing.assert_close(got, _plain(x, w, b, t), rtol=2e-3, atol=2e-3)
    assert _is_rewritten(inference) and "[False, False, False]" in inference.compilation.graph("g0.fw").text


class _TiedModel(torch.nn.Module):
    """A language model in small: the embedding's table is the last layer's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(V, H)
        self.norm = torch.nn.LayerNorm(H)
        self.head = torch.nn.Linear(H, V, bias=False)
        self.head.weight = self.embedding.weight
        self.loss = torch.nn.CrossEntropyLoss()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.norm(self.embedding(tokens)))
        shifted = logits[:, :-1, :].contiguous()
        return self.loss(shifted.view(-1, shifted.size(-1)), tokens[:, 1:].contiguous().view(-1))


def test_a_model_in_training() -> None:
    torch.manual_seed(0)
    plain, model = _TiedModel(), _TiedModel()
    model.load_state_dict(plain.state_dict())
    compiled = _compiled(model)
    tokens = torch.randint(0, V, (B, T))
    sizes = []
    for learner, run in ((plain, plain), (model, compiled)):
        optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = run(tokens)
            (loss / 2).backward()
            optimizer.step()
        sizes.append(loss.item())
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-5)
    assert _is_rewritten(compiled) and compiled.ran_compiled
    for one, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_frozen_weight_gets_no_gradient() -> None:
    x, w, b, t = _inputs()
    compiled = _compiled(_plain)
    frozen = (x, w.detach(), b, t)
    got, wanted = _with_gradients(compiled, frozen), _with_gradients(_plain, frozen)
    assert "[True, False, False]" in compiled.compilation.graph("g0.fw").text
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_a_symbolic_number_of_rows() -> None:
    compiled = nbcompile.compile(_plain, options={"linear_cross_entropy": "always"})
    for rows in (T, 2 * T):
        x, w, b, t = _inputs()
        x, t = x.detach().repeat(1, rows // T, 1).requires_grad_(), t.repeat(1, rows // T)
        for tensor in (x, t):
            torch._dynamo.mark_dynamic(tensor, 1)
        loss = compiled(x, w, b, t)
        torch.testing.assert_close(loss, _plain(x, w, b, t))
        torch.testing.assert_close(
            torch.autograd.grad(loss, w)[0], torch.autograd.grad(_plain(x, w, b, t), w)[0]
        )
    assert compiled.recorder.graph_count == 1 and _is_rewritten(compiled)


def test_equal_losses_keep_their_own_gradients() -> None:
    def twice(x: Any, w: Any, b: Any, t: Any) -> Any:
        return 3 * _plain(x, w, b, t) + 0.5 * _plain(x, w, b, t)

    compiled = _compiled(twice)
    got, wanted = _with_gradients(compiled, _inputs()), _with_gradients(twice, _inputs())
    assert compiled.compilation.graph("g0.fw").text.count("= nbcompile.linear_cross_entropy") == 2
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_backward_twice() -> None:
    x, w, b, t = _inputs()
    compiled = _compiled(_plain)
    loss = compiled(x, w, b, t)
    wanted = torch.autograd.grad(_plain(x, w, b, t), [x, w])
    for by, keep in ((2.0, True), (0.0, True), (3.0, False)):
        got = torch.autograd.grad(loss, [x, w], torch.tensor(by), retain_graph=keep)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, by * other)


def test_the_record_says_so() -> None:
    names, of = cell(
        """
        def f(x, w, t):
            logits = F.linear(x, w)
            return F.cross_entropy(logits.view(-1, 37), t.view(-1))
        """
    )
    compiled = nbcompile.compile(names["f"], cell=of, options={"linear_cross_entropy": "always"})
    x, w, _, t = _inputs()
    compiled(x, w, t)
    record = compiled.compilation
    assert record.notes == (
        "linear + cross_entropy at line 4 run in 2 chunks: the logits (2.2 kB) never exist whole",
    )
    (step,) = [step for step in record.passes if step.name == "linear + cross_entropy"]
    assert (step.before, step.after) == ("g0.fx", "g0.fx")
    first = ["capture", "dropout", "out=", "margin losses", "channel_shuffle"]
    first += ["linear + cross_entropy", "attention"]
    assert [step.name for step in record.passes][: len(first)] == first
    captured = {node.id: node.name for node in record.graph("g0.fx").nodes}
    (node,) = [node for node in record.graph("g0.fw").nodes if node.op.startswith("nbcompile.")]
    assert node.kind == "library"
    (joint,) = node.origins
    known = {each.id: each for each in record.graph("g0.joint").nodes}
    assert [captured[origin] for origin in known[joint].origins] == ["logits", "view", "cross_entropy"]
    assert {span.line for span in node.spans} == {4}


@pytest.mark.nightly
def test_by_default_only_large_logits_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _inputs()

    def taken(**options: Any) -> bool:
        compiled = nbcompile.compile(_plain, options={"cache": False, **options})
        compiled(*inputs)
        return _is_rewritten(compiled)

    assert not taken()
    assert not taken(target="cuda:90")
    monkeypatch.setattr(rewrite, "LEAST_BYTES", B * T * V * 4 - 1)
    assert not taken()
    assert taken(target="cuda:90")
    assert not taken(target="cuda:90", linear_cross_entropy="never")


def test_the_option_is_checked() -> None:
    with pytest.raises(OptionError, match="Use auto, always or never"):
        Options.from_mapping({"linear_cross_entropy": "sometimes"})
