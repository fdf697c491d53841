"""Checkers of notebook 14: programs as files."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nbcompile.bench.export.blocked import export_error, quiet_export
from nbcompile.bench.export.program import DynamicDim, ExportedFunction
from nbcompile.bench.measure.timing import quiet
from nbcompile.errors import NbcompileError, in_one_line
from nbcompile.units import clip
from nbcompile.workshop.exercise import WrongAnswerError, exercise
from nbcompile.workshop.judging import called, equal, keyed, like, number, whole_number, yes_or_no

Dynamic = Mapping[str, Mapping[int, DynamicDim]]
Loaded = Callable[..., Any]


class Mixer(nn.Module):
    """Two inputs that share a dimension: each row's query is answered from its own keys."""

    def forward(self, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax((keys * query[:, None]).sum(-1), -1)
        return (keys * weights[..., None]).sum(1)


class Limiter(nn.Module):
    """Scores that are scaled down to length 1 if they are longer."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h: torch.Tensor = self.score(x)
        if h.norm() > 1:
            h = h / h.norm()
        return h


class Scaled(nn.Module):
    """A Python number, a buffer and a print."""

    offset: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0
        self.register_buffer("offset", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("called")
        return x * self.scale + self.offset


def file_of(module: Callable[..., Any], inputs: tuple[Any, ...], dynamic: Dynamic) -> Loaded:
    """The program as it comes back from a file. Raises what torch.export raises, or ExportError."""
    program = ExportedFunction.of(module, inputs, {}, dynamic)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad(), quiet(silent=True), quiet_export():
        try:
            exported = program.export()
        except Exception as error:
            raise export_error(program, error) from error
        path = Path(folder, "model.pt2")
        torch.export.save(exported, path)
        loaded: Loaded = torch.export.load(path).module()
    return loaded


def takes(loaded: Loaded, *inputs: torch.Tensor) -> bool:
    """Whether the file accepts these inputs."""
    try:
        with torch.no_grad():
            loaded(*inputs)
    except Exception:  # a guard of torch's, or an operator that does not fit: both mean no
        return False
    return True


SIZES = ((3, 16), (4, 16), (32, 16), (33, 16), (8, 17))
"""Of the input, in the exercise that asks which are accepted."""


@exercise("export.sizes")
def sizes(answer: Mapping[tuple[int, int], bool]) -> str:
    """Which of ``SIZES`` an exported linear layer takes, True or False for each. The file is called with
    each."""
    yes_or_no(answer, SIZES)
    truth = _accepted()
    wrong = [size for size in SIZES if answer[size] != truth[size]]
    if wrong:
        columns = wrong[0][1]
        why = (
            "The number of columns was not named, so what is it in the file?"
            if columns != 16
            else "Compare the number of rows with both bounds, and remember what is known of the unnamed one."
        )
        raise WrongAnswerError(f"{len(SIZES) - len(wrong)} of 5 are right, {wrong[0]} is not. {why}")
    accepted = ", ".join(str(size) for size in SIZES if truth[size])
    return f"the file takes {accepted} and raises at the others: a guard, not a wrong result."


@cache
def _accepted() -> dict[tuple[int, int], bool]:
    loaded = file_of(nn.Linear(16, 4), (torch.randn(8, 16),), {"input": {0: ("batch", 4, 32)}})
    return {size: takes(loaded, torch.randn(size)) for size in SIZES}


@exercise("export.dims")
def dims(answer: Dynamic) -> str:
    """The argument ``dynamic`` with which :class:`Mixer` is exported for batches of 1 to 64 and lengths
    of 1 to 128. The file must give the module's results within these bounds, and refuse what is just
    above them."""
    _named_sizes(answer)
    torch.manual_seed(0)
    module = Mixer()

    def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, 16), torch.randn(batch, length, 16)

    try:
        loaded = file_of(module, inputs(8, 10), answer)
    except NbcompileError as error:
        raise WrongAnswerError(f"It is not exported: {clip(in_one_line(error), 240)}") from error
    for batch, length in ((8, 10), (64, 10), (3, 10), (1, 10), (8, 128), (8, 7), (1, 1), (64, 128)):
        given = inputs(batch, length)
        if not takes(loaded, *given):
            raise WrongAnswerError(
                f"The file refuses batch {batch} with length {length}. Is each size that may "
                "change named, from its least value on?"
            )
        torch.testing.assert_close(loaded(*given), module(*given))
    for batch, length in ((65, 10), (8, 129)):
        if takes(loaded, *inputs(batch, length)):
            raise WrongAnswerError(
                f"The file takes batch {batch} with length {length}, to be refused. State the bounds."
            )
    bounds = [size for axes in answer.values() for size in axes.values() if not isinstance(size, str)]
    if wrong := [size for size in bounds if size[1] != 1]:
        name, least, _ = wrong[0]
        raise WrongAnswerError(
            f"The file does what is asked, but you say that {name!r} begins at {least}. torch.export checks "
            "no least value below 3, so nothing refuses it: who reads your bounds is misled."
        )
    largest: dict[str, int | None] = {}
    for name, _, most in bounds:
        if largest.setdefault(name, most) != most:
            raise WrongAnswerError(
                f"The file does what is asked, but you say that {name!r} ends at {largest[name]} and at "
                f"{most}: torch.export takes the smaller."
            )
    return "batches of 1 to 64 and lengths of 1 to 128 give what the module gives; 65 and 129 are refused."


def _named_sizes(answer: Any) -> None:
    """``answer`` has the form of ``dynamic``."""
    each = [*answer.values()] if isinstance(answer, Mapping) else [None]
    sizes = [size for one in each for size in (one.values() if isinstance(one, Mapping) else [None])]
    axes = [axis for one in each if isinstance(one, Mapping) for axis in one]
    named = all(_is_named(size) for size in sizes) and all(type(axis) is int for axis in axes)
    if not named or not all(isinstance(name, str) for name in answer):
        raise WrongAnswerError(
            "The answer is a dict, as the argument `dynamic` of nbcompile.export: for an argument's name a "
            'dict from the number of an axis to ("a name", least, largest).'
        )


def _is_named(size: Any) -> bool:
    name, *bounds = size if isinstance(size, tuple) and len(size) == 3 else (size,)
    return isinstance(name, str) and name.isidentifier() and all(type(bound) is int for bound in bounds)


@exercise("export.mend")
def mend(answer: type[nn.Module]) -> str:
    """A subclass of :class:`Limiter` that can be exported. Its file must give what Limiter gives, for scores
    longer than 1 and for shorter ones."""
    if not (isinstance(answer, type) and issubclass(answer, Limiter)):
        raise WrongAnswerError("The answer is a class that inherits from Limiter.")
    torch.manual_seed(0)
    reference = Limiter()
    module = called(answer, "Your class")
    try:
        module.load_state_dict(reference.state_dict())
    except RuntimeError as error:
        raise WrongAnswerError("It is to have the parameters of Limiter: leave __init__ as it is.") from error
    with torch.no_grad():
        module.score.bias.zero_()
        reference.score.bias.zero_()
    x = torch.randn(6, 8)
    try:
        loaded = file_of(module, (x,), {"x": {0: "batch"}})
    except NbcompileError as error:
        raise WrongAnswerError(f"It is not exported: {clip(in_one_line(error), 240)}") from error
    for factor, which in ((10.0, "longer than 1"), (0.01, "shorter than 1")):
        with torch.no_grad():
            wanted, found = reference(x * factor), loaded(x * factor)
        like(found, wanted, "forward")
        if not torch.allclose(wanted, found, rtol=1e-4, atol=1e-6):
            raise WrongAnswerError(
                f"It is exported, but for scores {which} the file gives something else than Limiter does. "
                "The file has one way for both cases."
            )
    return "the file does what Limiter does on both sides of the branch, and the branch is gone."


@exercise("export.baked")
def baked(answer: Mapping[str, float]) -> str:
    """What the file of a :class:`Scaled` returns for ones after the module's number and buffer have changed,
    and how often three calls of it print."""
    keyed(answer, ("result", "printed"), "a number")
    number(answer["result"], "The result")
    whole_number(answer["printed"], "How often it prints")
    module = Scaled()
    with contextlib.redirect_stdout(io.StringIO()):
        loaded = file_of(module, (torch.ones(2),), {})
    module.scale = 10.0
    module.offset.fill_(5.0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        results = [float(loaded(torch.ones(2))[0]) for _ in range(3)]
    truth = {"result": results[-1], "printed": printed.getvalue().count("called")}
    hints = {
        "result": "What of scale and offset did the file read, and when?",
        "printed": "Is a print a tensor operation?",
    }
    equal(answer, truth, hints)
    return (
        f"the file returns {truth['result']:g}: scale and offset are as they were on export. It has printed "
        f"{truth['printed']} times."
    )
