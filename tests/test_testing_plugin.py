"""The fixture ``assert_compiles``: what it lets pass, and how it says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from nbcompile.errors import OptionError
from nbcompile.testing import AssertCompiles

pytest_plugins = ["pytester"]

assert_compiles = AssertCompiles()


def soft(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.softmax(x, -1)
    z = y * 2
    return z, x.sum(0)


def printing(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    print("")
    return y * 2


def first_line(function: Any) -> int:
    return int(function.__code__.co_firstlineno)


def refused(fn: Any, *inputs: Any, **wanted: Any) -> str:
    with pytest.raises(AssertionError) as failed:
        assert_compiles(fn, *inputs, **wanted)
    return str(failed.value)


@pytest.mark.parametrize("kernels", [2, "2", "==2", "<=2", ">=2", "<3", ">1"])
def test_counts_that_hold_pass(kernels: int | str) -> None:
    record = assert_compiles(soft, torch.ones(8, 8), kernels=kernels, graphs=1)
    assert len(record.kernels) == 2


def test_more_kernels_are_named_with_the_refusal_at_its_line() -> None:
    said = refused(soft, torch.ones(8, 8), kernels="<=2", options={"no_fuse": "_softmax:mul"})
    line = first_line(soft)
    here = "tests/test_testing_plugin.py"
    assert said.splitlines() == [
        "soft: 3 kernels, <=2 asked for",
        f"  kernel softmax ({here}:{line + 1})",
        f"  kernel mul ({here}:{line + 2})",
        f"  kernel sum ({here}:{line + 3})",
        f"  _softmax → mul not fused ({here}:{line + 2}): you asked not to fuse this pair"
        " (it would save 512 B)",
    ]


def test_a_break_is_shown_at_its_line() -> None:
    said = refused(printing, torch.ones(8, 8), graphs=1).splitlines()
    place = f"tests/test_testing_plugin.py:{first_line(printing) + 2}"
    assert said[0] == "printing: 1 break, 0 asked for"
    assert said[1].startswith(f"  {place}: print() writes to the screen, which a graph cannot do. ")
    assert said[2:] == ["printing: 2 graphs, 1 asked for"]
    assert_compiles(printing, torch.ones(8, 8), breaks="<=1", graphs=2)


def test_recompiles_are_about_all_calls() -> None:
    other = [(torch.ones(9, 16),)]
    assert "soft: 1 recompile, 0 asked for" in refused(soft, torch.ones(8, 16), also=other)
    assert_compiles(soft, torch.ones(8, 16), also=other, recompiles=1)
    assert_compiles(soft, torch.ones(8, 16), also=other, dynamic=True)


def test_what_runs_eagerly_fails() -> None:
    said = refused(lambda x: x, 3)
    assert said.endswith("it ran eagerly: Dynamo found no tensor operations to compile")


def wrong_backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
    return lambda *args: [out + 1 if isinstance(out, torch.Tensor) else out for out in graph.forward(*args)]


def test_a_wrong_answer_fails() -> None:
    said = refused(soft, torch.ones(8, 8), backend=wrong_backend)
    assert "soft: output[0] is not what eager gives: error " in said


def test_gradients_are_compared_and_state_is_put_back() -> None:
    model = torch.nn.Linear(8, 8)
    x = torch.randn(8, 8, requires_grad=True)
    before = torch.get_rng_state()
    assert_compiles(model, x, train=True)
    assert x.grad is None and model.weight.grad is None
    assert torch.equal(torch.get_rng_state(), before)
    said = refused(model, x, train=True, tolerance=1e-15)
    assert "Linear: the error of fn.weight.grad is " in said and ", over 1e-15, eager's own is " in said


def test_what_cannot_be_meant_is_said() -> None:
    with pytest.raises(OptionError, match=r"kernels='three' is no count"):
        assert_compiles(soft, torch.ones(2, 2), kernels="three")
    with pytest.raises(OptionError, match="backend 'aot_eager' does not tell how many kernels"):
        assert_compiles(soft, torch.ones(2, 2), backend="aot_eager", kernels=1)
    with pytest.raises(ZeroDivisionError):  # what the function raises is its own
        assert_compiles(lambda x: 1 / 0, torch.ones(2))


def test_the_plugin_is_light() -> None:
    code = (
        "import sys, pytest\n"
        "before = set(sys.modules)\n"
        "import nbcompile.testing\n"
        "new = {name for name in set(sys.modules) - before if not name.startswith('_')}\n"
        "assert new == {'nbcompile', 'nbcompile.testing'}, new"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_pytest_shows_what_is_wrong_and_not_our_frames(pytester: pytest.Pytester) -> None:
    # Compiling is left to the tests above: this one is about pytest.
    pytester.makepyfile(
        """
        import sys, types

        asserting = types.ModuleType("asserting")
        asserting.problems = lambda fn, inputs, counts, **_: ([f"g: {counts['kernels']} asked for"], None)
        sys.modules["nbcompile.bench.regressions.asserting"] = asserting

        def test_it(assert_compiles):
            assert_compiles(len, [], kernels="<=3")
        """
    )
    entry = ["-p", "nbcompile.testing", "-p", "no:cacheprovider"]
    outcome = pytester.runpytest_subprocess(*entry, timeout=120)
    outcome.assert_outcomes(failed=1)
    outcome.stdout.fnmatch_lines(["*AssertionError: g: <=3 asked for"])
    outcome.stdout.no_fnmatch_line("*nbcompile/testing.py*")


@pytest.mark.nightly
def test_it_is_there_without_pytest() -> None:
    """Notebook 13 asserts with it, where `nbcompile[jupyter]` alone is installed."""
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from nbcompile.testing import AssertCompiles\n"
        "import torch; print(len(AssertCompiles()(torch.sin, torch.ones(8)).kernels))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "1", done.stderr
