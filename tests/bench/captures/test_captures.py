"""captures: every way of capturing a function, and what each is found to bake in."""

from __future__ import annotations

import importlib.util
import json
import random

import pytest
import torch

import nbcompile
from nbcompile.errors import MeasureError
from nbcompile.record.captures import Capture, Captures

X = torch.linspace(-1, 2, 12).reshape(4, 3)
FACTOR = 3.0


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def unrolled(x):
    total = x[0] * 0
    for row in range(x.shape[0]):
        total = total + x[row] * row
    return total


def verdicts(found: Captures, probe: str) -> dict[str, str]:
    return {capture.way: capture[probe].verdict for capture in found.captures if capture.findings}


def find(fn, inputs, ways, *probes, **rest) -> Captures:
    return nbcompile.captures(fn, inputs, ways=ways, probes=probes, timing=False, **rest)


def test_a_branch_on_data() -> None:
    ways = ["dynamo", "script", "trace", "fx", "export", "jax"]
    found = find(branch, X, ways, "values")
    assert verdicts(found, "values") == {"dynamo": "recompiles", "script": "right", "trace": "silently wrong"}
    assert "eager 0, here 2 at [0, 0]" in found["trace"]["values"].evidence
    assert "signs flipped" in found["trace"]["values"].evidence
    assert any("TracerWarning" in text for text in found["trace"].notes)
    line = branch.__code__.co_firstlineno + 1
    assert found["dynamo"].captured == "in pieces"
    for way in ("dynamo", "fx", "export", "jax"):
        assert found[way].line == line, way
    assert [found[way].captured for way in ("fx", "export", "jax")] == ["no"] * 3
    assert "traced" in found["fx"].reason and "\n" not in found["export"].reason


def test_lines_that_no_input_reaches_are_named() -> None:
    def rare(x):
        if x.max() > 1e6:
            return x * 0
        return x + 1

    found = find(rare, X, ["script"], "values")
    assert len(found.unprobed) == 1 and "return x * 0" in found.unprobed[0]
    assert found["script"]["values"].verdict == "right"
    reached = find(rare, X, ["trace"], "values", other_inputs=[(X * 1e7,)])
    assert reached.unprobed == () and reached["trace"]["values"].verdict == "silently wrong"
    assert "other_inputs[0]" in reached["trace"]["values"].evidence


def test_sizes() -> None:
    found = find(unrolled, X, ["dynamo", "trace", "export", "jax"], "sizes")
    assert verdicts(found, "sizes") == {
        "dynamo": "recompiles",
        "trace": "silently wrong",
        "export": "raises",
        "jax": "recompiles",
    }
    assert "size 4 → 7" in found["trace"]["sizes"].evidence
    assert found["trace"].nodes == 14 and found["jax"].nodes > 0


def test_what_is_read_from_around() -> None:
    scale, seen = 2.0, []

    def scaled(x):
        seen.append(1)
        return x * scale * FACTOR

    found = find(scaled, X, ["dynamo", "trace", "fx", "jax"], "closure", "effects")
    assert verdicts(found, "closure") == {
        "dynamo": "recompiles",
        "trace": "silently wrong",
        "fx": "silently wrong",
        "jax": "silently wrong",
    }
    assert {case.what for case in found["fx"]["closure"].cases} == {"scale 2.0 → 5.0", "FACTOR 3.0 → 7.0"}
    effects = verdicts(found, "effects")
    assert effects.pop("dynamo") == "right" and set(effects.values()) == {"silently wrong"}
    assert found["jax"]["effects"].evidence.endswith("seen is [1] after 3 calls, eager's [1, 1, 1]")
    assert (scale, seen, FACTOR) == (2.0, [], 3.0), "all is put back"


def test_prints(capsys) -> None:
    def loud(x):
        print("sum", x.sum())
        return x * 2

    found = find(loud, X, ["dynamo", "script", "trace", "jax"], "effects")
    assert verdicts(found, "effects") == {
        "dynamo": "right",
        "script": "right",
        "trace": "silently wrong",
        "jax": "silently wrong",
    }
    assert "0 of 3 calls printed" in found["trace"]["effects"].evidence
    assert "1 of 3 calls printed" in found["jax"]["effects"].evidence
    assert capsys.readouterr() == ("", "")


def test_random_numbers_and_mutation() -> None:
    def drawn(x):
        return x + torch.rand(())

    found = find(drawn, X, ["dynamo", "fx"], "random")
    # symbolic_trace knows only operations on its own values: this one runs while it traces.
    assert verdicts(found, "random") == {"dynamo": "right", "fx": "silently wrong"}
    assert "eager's own numbers" in found["dynamo"]["random"].evidence

    def python_only(x):
        return x + random.random()

    found = find(python_only, X, ["trace", "fx", "jax"], "random")
    assert found["trace"].captured == "no", "torch.jit.trace traces again, and finds another graph"
    assert verdicts(found, "random") == {"fx": "silently wrong", "jax": "silently wrong"}

    def in_place(x):
        x += 1
        return x * 2

    given = X.clone()
    found = find(in_place, given, ["fx", "export"], "mutation")
    assert verdicts(found, "mutation") == {"fx": "silently wrong", "export": "right"}
    assert torch.equal(given, X)


def test_numbers_and_dtypes() -> None:
    def f(x, n: int):
        return x * n + torch.zeros(3, dtype=torch.float32)

    found = find(f, (X, 2), ["dynamo", "script", "trace", "export"], "numbers", "dtype")
    assert verdicts(found, "numbers") == {"dynamo": "recompiles", "script": "right", "export": "raises"}
    assert found["trace"].captured == "no" and "Tuple[Tensor, int]" in found["trace"].reason
    assert found["script"]["dtype"].cases[0].what == "float32 → float64"


def test_a_module_in_training() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)).train()
    found = find(model, X, ["dynamo", "export"], "closure", "random")
    assert found["dynamo"].captured == "whole" and model.training
    assert found["export"]["random"].verdict == "right"


def test_ports() -> None:
    def drawn(x):
        return torch.exp(x)

    found = find(drawn, X, ["jax"], "sizes")
    assert found["jax"].captured == "absent" and "pass jax_fn=" in found["jax"].reason
    import jax.numpy as jnp

    ported = find(drawn, X, ["jax"], "sizes", jax_fn=lambda x: jnp.exp(x))
    assert ported["jax"].captured == "whole" and ported["jax"]["sizes"].verdict == "recompiles"
    assert "exp" in dict(ported["jax"].graphs)["jaxpr"]
    other = find(drawn, X, ["jax"], jax_fn=lambda x: jnp.exp(x) + 1)
    assert any("another function" in text for text in other["jax"].notes)


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is not None, reason="TensorFlow is here")
def test_without_tensorflow() -> None:
    found = find(branch, X, ["tf"])
    assert found["tf"].captured == "absent" and "pip install tensorflow" in found["tf"].reason


@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
@pytest.mark.parametrize("way", ["tf", "tf-xla"])
def test_tensorflow(way: str) -> None:
    import tensorflow as tf

    def ported(x):
        print("traced")
        if tf.reduce_sum(x) > 0:
            return x * 2
        return x - 1

    found = find(branch, X, [way], "values", "sizes", "effects", tf_fn=ported)
    assert verdicts(found, "values") == {way: "right"}, "AutoGraph keeps the branch"
    assert verdicts(found, "sizes") == {way: "recompiles"}
    assert "1 of 3 calls printed" in found[way]["effects"].evidence
    assert ("HLO" in dict(found[way].graphs)) == (way == "tf-xla") and found[way].nodes


def test_times_only_of_what_ran_and_agrees() -> None:
    def moving(x):
        return x * len(_LOG.append(1) or _LOG)

    found = nbcompile.captures(moving, X, ways=["dynamo", "fx"], probes=(), budget=0.02)
    assert found.seconds and found["fx"].seconds
    assert not found["dynamo"].call_seconds
    assert "more graphs meanwhile" in found["dynamo"].notes[-1]
    assert _LOG == []
    again = nbcompile.captures(branch, X, ways=["dynamo", "export-strict"], probes=(), budget=0.02)
    assert again["dynamo"].call_seconds, "strict export resets Dynamo: captured again before it is timed"


_LOG: list[int] = []


def test_views_and_table() -> None:
    def hostile(x):
        return x * FACTOR

    found = find(hostile, X, ["script", "fx", "tf"], "closure", "values")
    text = found.as_text()
    assert "✗ closure: FACTOR 3.0 → 7.0" in text and all(len(line) <= 110 for line in text.splitlines())
    table = found.table()
    assert table.loc["fx", "closure"] == "silently wrong" and table.loc["fx", "nodes"] == 1
    assert json.loads(found.to_json())["captures"][0]["way"] == "script"
    html = Captures("<b>", "", 1, (Capture("fx", "<script>", "no", "<i>why</i>"),))._repr_html_()
    assert "<script>" not in html and "&lt;i&gt;why" in html
    assert "torch.fx.symbolic_trace" in found._repr_html_() and "FACTOR 3.0" in found._repr_html_()


def test_what_cannot_be_asked() -> None:
    with pytest.raises(MeasureError, match="no way 'onnx'"):
        nbcompile.captures(branch, X, ways=["onnx"])
    with pytest.raises(MeasureError, match="no probe 'colour'"):
        nbcompile.captures(branch, X, probes=["colour"])
    with pytest.raises(MeasureError, match="was not tried"):
        find(branch, X, ["fx"])["jax"]
    with pytest.raises(ValueError, match="own affair"):
        nbcompile.captures(_raising, X)


def _raising(x):
    raise ValueError("the function's own affair")


def test_ways_that_could_not_be_tried_are_counted_beside_the_others() -> None:
    ways = (Capture("fx", "fx", "whole"), Capture("jax", "jax", "absent", "it takes no torch.softmax"))
    assert "1 of 1 way capture it whole, 1 more could not be tried" in str(Captures("f", "", 1, ways))
