"""Run a program: eagerly, compiled, with rounding errors of its own size put in, or in wide types."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import _disable_current_modes

from tests.fuzz.plain_control import in_python
from tests.fuzz.program import Input, Program, Step, function
from tests.fuzz.rounding import Rounding

SEED = 20
"""Torch's generator before each call."""


def values(
    shape: Sequence[int], dtype: torch.dtype, fill: str = "normal", seed: int = 0, device: str = "cpu"
) -> torch.Tensor:
    """A tensor of known contents.

    fill: ``normal``, ``positive`` (0.1 to 2), ``unit`` (0 to 1, open), ``few`` (multiples of a half, many of
    them alike), ``special`` (normal, with NaN, infinities and both zeros among them), ``index:N`` (0 to N -
    1), ``distinct`` (0 .. n - 1 in disorder). Integers are -4 to 4 (0 to 8 without a sign) where nothing else
    is said. ``"normal of float16"``: what the contents of that type are.
    """
    if " of " in fill:
        fill, narrow = fill.split(" of ")
        return values(shape, getattr(torch, narrow), fill, seed, device).to(dtype)
    generator = torch.Generator().manual_seed(1000 + seed)
    shape = tuple(shape)
    if fill.startswith("index:"):
        return torch.randint(0, max(int(fill[6:]), 1), shape, generator=generator).to(dtype).to(device)
    count = torch.Size(shape).numel()
    if fill == "distinct":
        return torch.randperm(count, generator=generator).reshape(shape).to(dtype).to(device)
    if dtype == torch.bool:
        return (torch.rand(shape, generator=generator) > 0.5).to(device)
    if not dtype.is_floating_point and not dtype.is_complex:
        low = 0 if dtype == torch.uint8 else -4
        return torch.randint(low, low + 9, shape, generator=generator).to(dtype).to(device)
    made = torch.randn(shape, generator=generator, dtype=torch.float64)
    if dtype.is_complex:
        return (
            torch.complex(made, torch.randn(shape, generator=generator, dtype=torch.float64))
            .to(dtype)
            .to(device)
        )
    if fill == "positive":
        made = made.abs() % 1.9 + 0.1
    elif fill == "unit":
        made = torch.rand(shape, generator=generator, dtype=torch.float64) * 0.9 + 0.05
    elif fill == "few":
        made = (made * 2).round() / 2
    elif fill == "special" and count:
        flat = made.view(-1)
        for number, special in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
            flat[(7 * number + seed) % count] = special
    return made.to(dtype).to(device)


def in_one_memory(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Tensors of these sizes, strides and (but where they meet) numbers in one memory, each an element after
    the one before."""
    held = [1 + sum((n - 1) * step for n, step in zip(each.shape, each.stride())) for each in tensors]
    memory = tensors[0].new_zeros(max(count + number for number, count in enumerate(held)))
    made = [memory.as_strided(each.shape, each.stride(), number) for number, each in enumerate(tensors)]
    for new, old in zip(made, tensors):
        new.copy_(old)
    return made


def weights(like: torch.Tensor, number: int) -> torch.Tensor:
    """What a result's gradient is multiplied by."""
    made = values(
        tuple(like.shape), torch.complex64 if like.dtype.is_complex else torch.float32, seed=500 + number
    )
    return made.to(device=like.device, dtype=like.dtype)


@dataclass
class Outcome:
    """What one call did. ``gradients`` has a list for each time that they were taken. ``error`` is the
    exception, and ``stage`` where it came: ``call`` or ``backward``."""

    inputs: tuple[torch.Tensor, ...] = ()
    results: tuple[Any, ...] = ()
    gradients: list[tuple[Any, ...]] = field(default_factory=list)
    generator: torch.Tensor | None = None
    error: BaseException | None = None
    stage: str = ""


class Runner:
    """A program on a device: makes the arguments of each call and runs functions on them."""

    def __init__(self, program: Program, device: str = "cpu") -> None:
        program = self.program = program.on(device)
        self.device = device
        self.function = function(program.source(device), "program")
        self._inputs = function(
            program.inputs_source(device), "inputs", values=values, in_one_memory=in_one_memory
        )

    def arguments(self, call: int) -> tuple[torch.Tensor, ...]:
        return self._inputs(call, **self.program.sizes[call])  # type: ignore[no-any-return]

    @contextlib.contextmanager
    def surroundings(self, always: bool = False) -> Iterator[None]:
        """The regions around a call (with ``always`` those that the function has within too)."""
        with contextlib.ExitStack() as stack:
            if self.device != "cpu" and not self.program.mixes_devices:
                stack.enter_context(torch.device(self.device))
            if always or not self.program.inside:
                for region in self.program.regions(self.device):
                    stack.enter_context(eval(region, {"torch": torch}))
            yield

    def run(
        self, call: int, fn: Callable[..., Any] | None = None,
        around: contextlib.AbstractContextManager[Any] | None = None,
    ) -> Outcome:  # fmt: skip
        """One call of ``fn``, by default of the program itself; ``around`` it and what takes gradients."""
        arguments = self.arguments(call)
        outcome = Outcome(arguments)
        torch.manual_seed(SEED + call)
        # A compile that fails may leave a mode behind which its graph enters.
        clean = torch.inference_mode(False), torch.enable_grad(), torch.autocast(self.device, enabled=False)
        with contextlib.ExitStack() as stack:
            for each in (warnings.catch_warnings(), *clean, *([around] if around is not None else [])):
                stack.enter_context(each)
            warnings.simplefilter("ignore")
            try:
                with self.surroundings(), in_python() if fn is None else contextlib.nullcontext():
                    outcome.results = tuple((fn or self.function)(*arguments))
            except torch.AcceleratorError:
                raise  # nothing that this process does on its GPU works any more
            except Exception as error:
                outcome.error, outcome.stage = error, "call"
                return outcome
            outcome.generator = self.generator_state()
            if self.program.trains:
                self._take_gradients(outcome, arguments)
        if self.device != "cpu":
            torch.cuda.synchronize()  # whose fault an access outside of memory is
        return outcome

    def fake_results(self, call: int, symbolic: bool = False) -> tuple[Any, ...]:
        """What one call returns of fake tensors, which know shapes and strides as compilers are told them,
        those of ``symbolic`` sizes otherwise at times. What these cannot compute (a branch by a number) is
        computed of real ones that lie as these do."""
        names = [item.name for item in self.program.inputs]
        real: dict[str, Any] = {"torch": torch, "F": F, **dict(zip(names, self.arguments(call)))}
        torch.manual_seed(SEED + call)
        mode = FakeTensorMode(shape_env=ShapeEnv() if symbolic else None)
        fake = {name: _as_fake(mode, value) for name, value in real.items()}
        with self.surroundings(always=True):
            for step in self.program.steps:
                run_step(step, real)
                try:
                    with mode:
                        run_step(step, fake)
                except torch.AcceleratorError:
                    raise
                except Exception:
                    own = {name: _lying_as(value, fake.get(name)) for name, value in real.items()}
                    with contextlib.suppress(Exception):
                        run_step(step, own)
                    fake |= {name: _as_fake(mode, own.get(name, real[name])) for name in step.results}
        return tuple(fake[name] for name in self.program.results)

    def is_laid_out_otherwise(self, call: int) -> bool:
        """Whether fake tensors have other strides than real ones where the program reads by strides, or draws
        in the order of memory: what a compiler is told of them is not so then."""
        with FakeTensorMode() as mode:
            told = self._strides_read(map(mode.from_tensor, self.arguments(call)))
        return any(fake != real for fake, real in zip(told, self._strides_read(self.arguments(call))))

    def _strides_read(self, arguments: Iterable[torch.Tensor]) -> list[tuple[int, ...]]:
        """As far as fake tensors take the program."""
        scope: dict[str, Any] = {"torch": torch, "F": F}
        scope |= {item.name: value for item, value in zip(self.program.inputs, arguments)}
        found: list[tuple[int, ...]] = []
        try:
            with self.surroundings(always=True):
                for step in self.program.steps:
                    if _BY_STRIDES.search(step.code):
                        operands = [scope[name] for name in step.operands]
                        found += [item.stride() for item in operands if isinstance(item, torch.Tensor)]
                    run_step(step, scope)
        except torch.AcceleratorError:
            raise
        except Exception:  # fake tensors do not take this step
            pass
        return found

    def generator_state(self) -> torch.Tensor:
        return torch.get_rng_state() if self.device == "cpu" else torch.cuda.get_rng_state().cpu()

    def _take_gradients(self, outcome: Outcome, arguments: Sequence[torch.Tensor]) -> None:
        results = [
            (item, weights(item.detach(), number))
            for number, item in enumerate(outcome.results)
            if isinstance(item, torch.Tensor) and item.requires_grad
        ]
        wanted = [item for item in arguments if item.requires_grad]
        if not results or not wanted:
            return
        times = 2 if self.program.mode == "twice" else 1
        try:
            for number in range(times):
                outcome.gradients.append(
                    torch.autograd.grad(
                        [item for item, _ in results],
                        wanted,
                        [weight for _, weight in results],
                        allow_unused=True,
                        retain_graph=number + 1 < times,
                    )
                )
        except torch.AcceleratorError:
            raise
        except Exception as error:
            outcome.error, outcome.stage = error, "backward"

    # -- step by step --------------------------------------------------------------------------

    def run_noisily(self, call: int, seed: int, size: float, inside: bool = False) -> Outcome:
        """One call in which each step that rounds sees operands that are off by up to ``size`` units in
        the last place: how much the results move tells how far they may be off. Gradients flow back
        through the same. ``inside``: each operator that a step is made of rounds too."""
        noise = Noise(seed, size, self.program.autocast)
        names = [item.name for item in self.program.inputs]

        def stepwise(*arguments: torch.Tensor) -> tuple[Any, ...]:
            scope: dict[str, Any] = {"torch": torch, "F": F, **dict(zip(names, arguments))}
            with self.surroundings(always=True):
                for step in self.program.steps:
                    run_step(step, scope, noise)
            return tuple(scope[name] for name in self.program.results)

        return self.run(call, stepwise, Rounding(seed, size, noise.least) if inside else None)


def _as_fake(mode: FakeTensorMode, value: Any) -> Any:
    return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value


def _lying_as(real: Any, fake: Any) -> Any:
    """A copy of a tensor that has the strides of a fake one."""
    if not isinstance(real, torch.Tensor) or not isinstance(fake, torch.Tensor) or real.shape != fake.shape:
        return real
    laid_out = torch.empty_strided(
        real.shape, tuple(map(int, fake.stride())), dtype=real.dtype, device=real.device
    )
    with contextlib.suppress(RuntimeError), torch.no_grad():  # where elements share memory
        return laid_out.copy_(real)
    return real


def undisturbed(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that makes noise, of which ``Rounding`` makes no more."""

    @functools.wraps(method)
    def apart(*arguments: Any) -> Any:
        with _disable_current_modes():
            return method(*arguments)

    return apart


class Noise:
    """Multiplies by numbers near one."""

    def __init__(self, seed: int, size: float, autocast: str) -> None:
        self.seed = seed
        self.generator = torch.Generator().manual_seed(seed)
        self.size = size
        self.least = torch.finfo(getattr(torch, autocast)).eps if autocast else 0.0

    @property
    def snaps(self) -> bool:
        """Whether numbers count as equal that are nearly so: errors alone never make two equal."""
        return self.seed % 2 == 1

    @undisturbed
    def snapped(self, value: Any) -> Any:
        """``value`` with fewer digits, and nothing where next to nothing is left of larger numbers."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        digits = 1 / (16 * max(torch.finfo(value.dtype).eps, self.least))
        mantissa, exponent = torch.frexp(value.double())
        short = torch.ldexp((mantissa * digits).round() / digits, exponent).to(value.dtype)
        least = value.detach().abs().nan_to_num(0, 0, 0).amax() / digits
        short = torch.where(short.abs() <= least, torch.zeros_like(short), short)
        return torch.where(short.isfinite(), value + (short - value).detach(), value)  # gradients go through

    def levelled(self, value: Any) -> bool:
        """Whether all of it is one number, but for what it may be off."""
        short = self.snapped(value)
        return (
            isinstance(short, torch.Tensor)
            and bool(short.numel())
            and bool((short == short.flatten()[0]).all())
        )

    @undisturbed
    def near(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
            return value
        eps = max(torch.finfo(value.dtype).eps, self.least)
        if self.snaps and value.is_floating_point():  # NaN has a sign, of which nothing is said
            value = torch.where(value.isnan(), -value, value)
        random = torch.rand(value.shape, generator=self.generator, dtype=torch.float64, device="cpu") * 2 - 1
        factor = (1 + random * eps * self.size).to(device=value.device, dtype=value.real.dtype)
        if self.size <= 1 or not value.numel():
            return value * factor
        # where nothing is left of larger numbers, another order of rounding leaves a little of either sign
        # (what it was made of may all be nought and one)
        left = value.detach().abs().nan_to_num(0, 0, 0).amax().clamp(min=1.0) * (factor - 1)
        return value * factor + torch.where(value.detach() == 0, left, torch.zeros_like(left))

    def near_mean(self, value: torch.Tensor) -> torch.Tensor:
        """Equal numbers, off by what a sum of so many is: a norm takes their mean from them."""
        many = max(1.0, math.sqrt(value.numel()) / 4)
        return Noise(int(self.generator.initial_seed()), self.size * many, "").near(value)


_DECIDES = re.compile(
    r"\b(eq|ne|isclose|argmax|argmin|max|min|sort|argsort|topk|median|nanmedian|mode|kthvalue|cummax|cummin|"
    r"any|all|bool|logical_\w+|count_nonzero|nonzero|sign|sgn)\b(?!=)|[=!]= "
)
"""Where two numbers that are nearly the same, or nearly nothing, may be told apart or not."""
_NORMS = re.compile(r"\b(layer_norm|group_norm|instance_norm|batch_norm)\b")
"""What these make of equal numbers is nothing, of others of the size of one."""


_BY_STRIDES = re.compile(r"as_strided|rand\w*_like|dropout|bernoulli|\bnormal_?\(|uniform|exponential|rrelu")


def run_step(step: Step, scope: dict[str, Any], noise: Noise | None = None) -> None:
    """Execute one statement in ``scope``."""
    compares = noise is not None and noise.snaps and bool(_DECIDES.search(step.code))
    levels = noise is not None and bool(_NORMS.search(step.code))
    # 2.9999 and 3.0 are other indices
    if noise is None or (step.exact and ".long()" not in step.code and not compares):
        with in_python():
            exec(step.line, scope)
        return
    own, line = dict(scope), step.line
    for name in step.operands:
        if name == step.writes:
            continue
        if compares:
            own[name] = noise.snapped(scope[name])
            continue
        if levels and noise.levelled(scope[name]):
            own[name] = noise.snapped(scope[name]) if noise.snaps else noise.near_mean(scope[name])
            continue
        own[name] = noise.near(scope[name])
        # each mention has an error of its own: a compiler may compute a value anew where it is used, rounded
        # otherwise, and then ``v - v`` is not 0
        places = list(re.finditer(rf"\b{name}\b", line))
        for number, place in reversed(list(enumerate(places))[1:]):
            own[f"{name}_{number}"] = noise.near(scope[name])
            line = f"{line[: place.start()]}{name}_{number}{line[place.end() :]}"
    with in_python():
        exec(line, own)
    for name in step.results:
        scope[name] = noise.near(own[name])
    written = scope.get(step.writes)
    if isinstance(written, torch.Tensor) and not (step.exact or written.requires_grad):
        # a norm keeps its averages for backward, and overwrites them with nobody knowing
        with torch.autograd._unsafe_preserve_version_counter(() if written.is_inference() else (written,)):
            written.copy_(noise.near(written))


# -- wide types --------------------------------------------------------------------------------

_WIDE = {"float32": "float64", "float16": "float64", "bfloat16": "float64", "complex64": "complex128"}
_NARROW = re.compile(r"\b(float32|float16|bfloat16|complex64)\b")


def widened(program: Program) -> Program:
    """The program with float64 for every narrower floating-point type, and no autocast."""

    def wide(text: str) -> str:
        return _NARROW.sub(lambda found: _WIDE[found[1]], text)

    def wide_input(item: Input) -> Input:
        if wide(item.dtype) == item.dtype:
            return item
        return dataclasses.replace(item, dtype=wide(item.dtype), fill=f"{item.fill} of {item.dtype}")

    return dataclasses.replace(
        program,
        inputs=tuple(map(wide_input, program.inputs)),
        steps=tuple(dataclasses.replace(step, code=wide(step.code)) for step in program.steps),
        autocast="",
    )
