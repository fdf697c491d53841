"""One program under one compiler, beside eager and float64: it agrees, it differs, or it raises."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import config as dynamo_config
from torch._dynamo.exc import BackendCompilerFailed

from nbcompile.bench.measure import accuracy
from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step, unheard
from nbcompile.errors import CheckError, in_one_line
from nbcompile.record.check import Went
from nbcompile.record.compilation import Accuracy

Function = Callable[..., Any]
_REFUSED = "could not compile it"
CompileFunction = Callable[[Function], Function]


@dataclass(frozen=True)
class Judged:
    """How a run went; ``found`` has the comparison of every output, ``error`` what was raised. ``sound`` is
    False where eager itself fails, so that nothing can be said of anybody else."""

    went: Went
    found: tuple[Accuracy, ...] = ()
    error: BaseException | None = None
    sound: bool = True
    eager_reason: str = ""

    @property
    def worst(self) -> Accuracy | None:
        """The comparison that says most: the largest error among those that do not agree, else of all. One of
        which eager has no correct digit (a gradient that is zero on paper) says least."""
        wrong = [item for item in self.found if not item.agrees] or list(self.found)
        telling = [item for item in wrong if (item.eager_error or 0.0) <= accuracy.NOISE] or wrong
        return max(telling, key=lambda item: item.error or 0.0, default=None)

    @property
    def reason(self) -> str:
        """Why it does not agree, in one line."""
        if self.error is not None:
            return in_one_line(root_cause(self.error))
        worst = self.worst
        return f"{worst.output}: {worst.reason}" if worst is not None and not worst.agrees else ""


@dataclass(frozen=True)
class Symptom:
    """What is looked for: numbers that differ, or an error like ``like``."""

    like: BaseException | None = None

    def shown_by(self, judged: Judged) -> bool:
        """Whether this run shows the same."""
        if self.like is None:
            return judged.went == "differs"
        return judged.error is not None and same_error(self.like, judged.error)


def judge(
    fn: Function,
    args: tuple[Any, ...],
    compile: CompileFunction,
    *,
    kwargs: Mapping[str, Any] | None = None,
    train: bool = False,
) -> Judged:
    """Run ``fn`` eagerly, in float64 and compiled, all from the same state, which is put back. ``train``:
    with the gradients, for fixed random ones of the outputs."""
    snapshot = Snapshot({"fn": fn, "inputs": args, **dict(kwargs or {})})
    leaves = tuple(t for t in snapshot.tensors.values() if t.is_leaf and t.requires_grad)
    eager = Step(fn, args, kwargs, train=train, leaves=leaves)
    try:
        compiled = compile(fn)
        watched = _Watched(eager.with_function(compiled))
        # An error that Dynamo would swallow is what is looked for.
        with unheard(), dynamo_config.patch(suppress_errors=False):
            # Step draws its fixed gradients once, for whoever asks first, and shares them.
            found = accuracy.check(eager, {"compiled": watched}, snapshot)  # type: ignore[dict-item]
    except Exception as error:  # of eager: the program is the user's, or was cut where it cannot be
        with contextlib.suppress(Exception):
            snapshot.restore()
        return Judged("not run", error=error, sound=False)
    reason = str(getattr(compiled, "eager_reason", "") or "")
    if watched.error is None and _REFUSED in reason:
        watched.error = CheckError(
            reason
        )  # ours is left to eager where it fails, with its error as the reason
    if watched.error is not None:
        return Judged("raises", found, watched.error, eager_reason=reason)
    went: Went = "agrees" if all(item.agrees for item in found) else "differs"
    return Judged(went, found, eager_reason=reason)


class _Watched:
    """A step that remembers what it raised."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.error: BaseException | None = None

    def __call__(self) -> Any:
        try:
            return self.step()
        except Exception as error:
            self.error = error
            raise


def root_cause(error: BaseException) -> BaseException:
    """What a backend raised, without what Dynamo wraps around it."""
    while isinstance(error, BackendCompilerFailed) and error.inner_exception is not error:
        error = error.inner_exception
    return error


def same_error(one: BaseException, other: BaseException) -> bool:
    """Whether two errors are of one type and say the same, but for numbers, names in quotes and addresses,
    which are others in a smaller program."""
    first, second = root_cause(one), root_cause(other)
    return type(first) is type(second) and _gist(first) == _gist(second)


def _gist(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return re.sub(r"0x[0-9a-f]+|'[^']*'|\"[^\"]*\"|[\w]*\d[\w]*", "", lines[0]) if lines else ""


def with_gradients(fn: Function, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> bool:
    """Whether a call has a result that a gradient can be taken of; the call leaves no trace."""
    snapshot = Snapshot({"fn": fn, "inputs": args, **dict(kwargs or {})})
    try:
        with unheard():
            leaves = torch.utils._pytree.tree_leaves(fn(*args, **dict(kwargs or {})))
        return any(isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None for leaf in leaves)
    finally:
        snapshot.restore()
