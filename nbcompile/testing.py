"""A pytest plugin: ``assert_compiles``, a fixture that holds a function to how it is to compile.

::

    def test_softmax_is_one_kernel(assert_compiles):
        assert_compiles(fn, x, kernels="<=1")

Importing this module imports nothing else of the package: pytest loads it in every project that has
nbcompile installed. Without pytest, :class:`AssertCompiles` is there all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nbcompile.record.compilation import Compilation


class AssertCompiles:
    """Compiles a function, runs it, and fails the test unless all that is asked for holds."""

    def __call__(
        self,
        fn: Callable[..., Any],
        *inputs: Any,
        breaks: int | str | None = 0,
        kernels: int | str | None = None,
        graphs: int | str | None = None,
        recompiles: int | str | None = 0,
        backend: str = "nbcompile",
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
        dynamic: bool | None = None,
        train: bool = False,
        tolerance: float | None = None,
        also: Sequence[tuple[Any, ...]] = (),
    ) -> Compilation:
        """Assert that compiled code ran for ``fn(*inputs)``, that it agrees with eager, and these counts.

        breaks, kernels, graphs, recompiles: a number is meant exactly, a text such as ``"<=3"`` (also ``<``,
            ``>=``, ``>``, ``==``) as it reads, ``None`` is not looked at.
        train:     backward runs as well, and gradients are compared.
        tolerance: the largest relative error of an output against float64; by default an error may be twice
            eager's own, or a few units in the last place.
        also:      inputs of further calls, where ``recompiles`` (and the other counts) are about all of them.
        backend, mode, options, dynamic: as for :func:`nbcompile.compile`.

        Inputs, the function's own state and the random state are afterwards what they were. Returns the
        record. AssertionError with the lines and reasons of whatever is not as asked; OptionError for what
        cannot be meant.
        """
        __tracebackhide__ = True
        from nbcompile.bench.regressions.asserting import problems
        from nbcompile.settings import CompileSettings

        found, record = problems(
            fn,
            inputs,
            counts={"breaks": breaks, "kernels": kernels, "graphs": graphs, "recompiles": recompiles},
            settings=CompileSettings(backend, mode, options, dynamic),
            train=train,
            tolerance=tolerance,
            also=also,
        )
        if found:
            raise AssertionError("\n".join(found))
        return record


try:
    import pytest
except ModuleNotFoundError:  # a notebook calls AssertCompiles by itself
    pass
else:

    @pytest.fixture
    def assert_compiles() -> AssertCompiles:
        """:class:`AssertCompiles`: call it with a function and its inputs."""
        return AssertCompiles()
