"""Is the compiled answer right? Eager and compiled are both held against a float64 reference.

"Eager and compiled differ" says nothing about which one is closer to the truth. So the program is run
a third time with every floating tensor it can reach widened to float64, in place, drawing the very
random numbers it draws otherwise; each output, gradient and changed tensor then has two errors, and a
contestant agrees if its own is at most twice eager's, or within a few units in the last place.

One more thing decides before anyone is said to differ: at a kink (a relu's gradient, an argmax) a last
bit tips the answer, for eager as for others. So eager is run again with its inputs off by a few units in
the last place; an error that such inputs cause in eager itself is not held against a contestant. Where few
such runs show none, a contestant takes part in more of them: a kink tips eager as often, a fault stays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from nbcompile.bench.measure.state import Snapshot
from nbcompile.bench.measure.timing import Step
from nbcompile.bench.process_state import ProcessState, as_if_compiling
from nbcompile.errors import MeasureError, in_one_line
from nbcompile.record.compilation import Accuracy
from nbcompile.record.measured import NOT_COMPARED
from nbcompile.units import times_text

FACTOR = 2.0
ULPS = 4
NOT_IN_EAGER = "eager does not make it"
RUN = "(run)"  # stands for the output of a contestant that raised
_TRIES = 4  # runs with inputs disturbed, where a contestant seems to differ
_MOST_TRIES = 16  # a kink that matters is tipped by some one in eight of them (VITS on a GPU)
SLIGHT = 1e-4  # a relative error up to which torch's own code for compilers may be another than eager's
NOISE = 0.5  # a relative error above this: eager itself has no correct digit
_LOW = (torch.float32, torch.float16, torch.bfloat16)
_WIDE = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
}
_MAX_REFERENCE_BYTES = 4 << 30

Results = dict[str, Any]


def check(eager: Step, contestants: Mapping[str, Step], snapshot: Snapshot) -> tuple[Accuracy, ...]:
    """Run everyone from the snapshot's state and compare; the state is restored at the end.

    One Accuracy for every contestant and output, named ``output``, ``output[1]``, ``x.grad``,
    ``running_mean``... A contestant that raises gives one Accuracy, of output
    ``RUN``, that says so.
    """
    try:
        expected = results_of(eager, snapshot)
        uses_random, left = "random" in snapshot.changed(), ProcessState()
        reference, why_not = float64_results(eager, snapshot)
        found: list[Accuracy] = []
        for name, step in contestants.items():
            try:
                got = results_of(step, snapshot)
            except Exception as error:  # whatever a backend raises is the finding, not our failure
                found.append(Accuracy(name, RUN, None, None, agrees=False, reason=in_one_line(error)))
                continue
            # Who leaves the generators as eager does has drawn what eager draws: there is no excuse for that.
            own = uses_random and left.random_changed()
            found += [
                compare_values(name, output, got, expected, reference, why_not, own)
                for output in [*expected, *(extra for extra in got if extra not in expected)]
            ]
        doubtful = {item.output for item in found if not item.agrees and item.error is not None}
        if doubtful and reference is not None:
            runs = _Disturbed(eager, contestants, snapshot, reference, doubtful)
            found = [runs.excused(item) if item.output in doubtful else item for item in found]
        return tuple(found)
    finally:
        snapshot.restore()


class _Disturbed:
    """Errors by output of runs whose inputs are a few units in the last place off, each made once."""

    def __init__(
        self, eager: Step, contestants: Mapping[str, Step], snapshot: Snapshot, reference: Results,
        outputs: set[str],
    ) -> None:  # fmt: skip
        self._steps: dict[str | None, Step] = dict(contestants) | {None: eager}
        self._snapshot, self._reference, self._outputs = snapshot, reference, outputs
        self._errors: dict[tuple[str | None, int], dict[str, float | None]] = {}
        self._as_compiled: dict[str, float] | None = None

    def excused(self, item: Accuracy) -> Accuracy:
        """``item``, which agrees after all if eager's own error gets as far by rounding its inputs. An error
        that few runs of eager get to, or at which no digit is correct, has to be an accident of these
        inputs besides: of others a contestant's is at most twice eager's a quarter of the time or more, where
        that of a fault stays."""
        if item.agrees or item.error is None:
            return item
        moves, worse, output = 0.0, 0, item.output
        if item.error < SLIGHT and item.error <= FACTOR * (other := self._error_as_compiled(output)):
            reason = f"as far as torch's own code for compilers is from eager's ({other:.1e})"
            return dataclasses.replace(item, agrees=True, reason=reason)
        for draw in range(_TRIES):
            moves = max(moves, self._error(None, draw, output))
        if item.error < NOISE and item.error <= FACTOR * moves:
            return _agreeing(item, moves)
        for draw in range(_MOST_TRIES):
            eager = self._error(None, draw, output)
            moves = max(moves, eager)
            worse += self._error(item.contestant, draw, output) > FACTOR * eager
            if draw + 1 >= _TRIES and worse == draw + 1:
                return item
            if draw + 1 >= 2 * _TRIES and item.error <= FACTOR * moves and 4 * worse <= 3 * (draw + 1):
                return _agreeing(item, moves)
        return item

    def _error_as_compiled(self, output: str) -> float:
        """Of eager where torch takes the branches that it keeps for compilers: the step of a compiled Adam
        counts its bias correction in float32, ``1 - beta**step`` with four digits, and that is no
        backend's fault. A program of the user's that asks the same may do anything."""
        if self._as_compiled is None:
            try:
                with as_if_compiling():
                    got = results_of(self._steps[None], self._snapshot)
            except Exception:  # of code that only a compiler can run
                got = {}
            self._as_compiled = {name: self._compared(name, got) or 0.0 for name in self._outputs}
        return self._as_compiled[output]

    def _error(self, contestant: str | None, draw: int, output: str) -> float:
        """Of eager (None) or a contestant. Where there is nothing to compare, eager's excuses nothing, and a
        contestant's is not excused."""
        known = self._errors.get((contestant, draw))
        if known is None:
            generator = torch.Generator().manual_seed(draw)
            try:
                got = results_of(self._steps[contestant], self._snapshot, generator)
            except Exception:  # of inputs that it is not asked for
                got = {}
            known = {name: self._compared(name, got) for name in self._outputs}
            self._errors[contestant, draw] = known
        error = known[output]
        if error is None:
            return 0.0 if contestant is None else math.inf
        return error

    def _compared(self, output: str, got: Results) -> float | None:
        one, wide = got.get(output), self._reference.get(output)
        if isinstance(one, torch.Tensor) and isinstance(wide, torch.Tensor) and one.shape == wide.shape:
            return _moved(_plain(one), _plain(wide))
        return None


def _moved(one: torch.Tensor, wide: torch.Tensor) -> float:
    """The error of a result; of integers and booleans, the share that differs."""
    if one.is_floating_point() or one.is_complex():
        return relative_error(one, wide)
    return float((one != wide).double().mean()) if one.numel() else 0.0


def _agreeing(item: Accuracy, moves: float) -> Accuracy:
    reason = f"as far as eager moves ({moves:.1e}) if its inputs are {ULPS} units in the last place off"
    return dataclasses.replace(item, agrees=True, reason=reason)


def _disturb(snapshot: Snapshot, generator: torch.Generator) -> None:
    """Multiply every floating tensor by up to 1 ± ``ULPS`` units in the last place; restore undoes it."""
    for name, tensor in snapshot.tensors.items():
        if tensor.dtype not in _LOW or tensor.layout is not torch.strided or name.endswith(".grad"):
            continue
        if tensor.device.type == "meta" or hasattr(tensor, "__tensor_flatten__"):
            continue
        noise = torch.rand(tensor.shape, generator=generator).mul_(2).sub_(1).mul_(ULPS)
        wide = tensor.detach().to(torch.float64)
        wide = wide * (1 + noise.to(wide) * torch.finfo(tensor.dtype).eps)
        tensor.data.copy_(wide)


def results_of(step: Step, snapshot: Snapshot, disturbed: torch.Generator | None = None) -> Results:
    """Outputs, gradients and changed tensors of one run from the saved state; copies, detached."""
    snapshot.restore()
    if disturbed is not None:
        _disturb(snapshot, disturbed)
    results = _results(step, snapshot)
    changed = {**snapshot.mutated(), **snapshot.placed()}.items()
    return results | {name: _copy(tensor) for name, tensor in changed if not name.endswith(".grad")}


def _results(step: Step, snapshot: Snapshot) -> Results:
    """Outputs and gradients of one run from the state as it is."""
    results: Results = {}
    for path, leaf in _pytree.tree_flatten_with_path(step())[0]:
        results["output" + _pytree.keystr(path)] = _copy(leaf)
    for name, tensor in snapshot.tensors.items():
        if tensor.is_leaf and tensor.requires_grad and tensor.grad is not None:
            results[f"{name}.grad"] = _copy(tensor.grad)
    return results


@dataclasses.dataclass(frozen=True)
class _Held:
    """What of an object can be compared, of a distribution or a dataclass that holds tensors: by name."""

    kind: type
    parts: Results


def _copy(leaf: Any, deep: int = 2) -> Any:
    if isinstance(leaf, torch.Tensor):
        if leaf.is_nested and leaf.layout is torch.jagged:  # its shape has a symbol that no other's has
            jagged: Any = leaf
            inner = {"values()": jagged.values(), "offsets()": jagged.offsets()}
            return _Held(type(leaf), {name: _copy(part) for name, part in inner.items()})
        return leaf.detach().clone()
    if hasattr(leaf, "__array_interface__"):  # of NumPy
        with contextlib.suppress(TypeError, ValueError):  # not of text, nor of objects
            return torch.as_tensor(leaf).clone()
    parts = _held(leaf, deep)
    if getattr(type(leaf), "__eq__", None) is object.__eq__:
        # Equal to itself alone: its numbers may count its like, or tell the time.
        return _Held(type(leaf), {name: item for name, item in parts.items() if _is_compared(item)})
    return _Held(type(leaf), parts) if any(map(_is_compared, parts.values())) else leaf


def _is_compared(item: Any) -> bool:
    return isinstance(item, torch.Tensor) or (isinstance(item, _Held) and bool(item.parts))


def _held(leaf: Any, deep: int) -> Results:
    """Copies of what an object holds."""
    if not deep or isinstance(leaf, (type, torch.nn.Module)):
        return {}
    if dataclasses.is_dataclass(leaf):
        own = {each.name: getattr(leaf, each.name, None) for each in dataclasses.fields(leaf)}
    else:
        own = getattr(leaf, "__dict__", {})
    return {
        name + _pytree.keystr(path): _copy(item, deep - 1)
        for name, value in own.items()
        for path, item in _pytree.tree_flatten_with_path(value)[0]
    }


# -- the float64 reference ---------------------------------------------------------------------


def float64_results(eager: Step, snapshot: Snapshot) -> tuple[Results | None, str]:
    """The float64 results, or ``None`` and the reason there are none."""
    snapshot.restore()
    floats = {t.dtype for t in snapshot.tensors.values() if t.is_floating_point() or t.is_complex()}
    if floats and not floats & set(_WIDE):
        return None, "the program already runs in float64"
    if snapshot.bytes > _MAX_REFERENCE_BYTES:
        return None, f"its tensors take {snapshot.bytes >> 30} GiB, too many to double"
    drawn = next((d for d in _LOW if d in floats), torch.float32)
    try:
        with _widened(snapshot), Float64Mode(drawn):
            results = _results(eager, snapshot)
            rest = {n: t for n, t in snapshot.tensors.items() if not n.endswith(".grad")}
            rest |= snapshot.placed()
            results = {name: _copy(tensor) for name, tensor in rest.items()} | results
    except Exception as error:  # a program that cannot run in float64 is compared with eager only
        first = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
        return None, f"no float64 run: {first}"
    finally:
        snapshot.restore()
    return results, ""


@contextlib.contextmanager
def _widened(snapshot: Snapshot) -> Iterator[None]:
    """Every floating tensor of the snapshot holds float64 meanwhile; views still share memory.

    MeasureError where one memory is read as two types, or a layout is not strided. The caller
    restores the snapshot afterwards.
    """
    wide: dict[int, tuple[torch.dtype, torch.Tensor]] = {}
    default = torch.get_default_dtype()
    for tensor in snapshot.tensors.values():
        if tensor.dtype not in _WIDE or tensor.device.type == "meta":
            continue
        if tensor.layout is not torch.strided or hasattr(tensor, "__tensor_flatten__"):
            raise MeasureError(f"a {type(tensor).__name__} of layout {tensor.layout} is not widened.")
        storage = tensor.untyped_storage()
        if storage._cdata not in wide:
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            flat.set_(storage, 0, (storage.nbytes() // tensor.element_size(),), (1,))
            wide[storage._cdata] = (tensor.dtype, flat.to(_WIDE[tensor.dtype]))
        dtype, memory = wide[storage._cdata]
        if dtype != tensor.dtype:
            raise MeasureError("one memory is read as two types.")
        tensor.data = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Below autograd, whatever would make a low-precision floating tensor makes a float64 one.

    Random numbers are drawn in ``drawn``, the dtype the program itself draws them in, and widened
    after: a float64 draw would use up the generator differently.
    """

    def __init__(self, drawn: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._drawn = drawn

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.ops.aten.native_dropout.default:
            return self._dropout(func, *args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._random(func, args, kwargs)
        if kwargs.get("dtype") in _WIDE:
            kwargs["dtype"] = _WIDE[kwargs["dtype"]]
        if func._schema.is_mutable:
            return func(*args, **kwargs)
        return func(*_pytree.tree_map(_widen, args), **_pytree.tree_map(_widen, kwargs))

    def _random(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        low_args, low_kwargs = _pytree.tree_map(self._narrow, (args, kwargs))
        given = kwargs.get("dtype")
        takes_dtype = any(argument.name == "dtype" for argument in func._schema.arguments)
        if takes_dtype and (given is None or given.is_floating_point) and "int" not in str(func):
            if func is not torch.ops.aten.randperm.default:
                low_kwargs["dtype"] = self._drawn
        result = func(*low_args, **low_kwargs)
        if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor):
            return args[0].copy_(result)
        return _pytree.tree_map(_widen, result)

    def _dropout(self, func: Any, x: torch.Tensor, p: float, train: bool | None) -> Any:
        _, mask = func(self._narrow(x), p, train)
        keep = 1.0 - p if train is not False else 1.0
        return x * mask * (1.0 / keep if keep else 0.0), mask

    def _narrow(self, leaf: Any) -> Any:
        wide = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float64
        return leaf.to(self._drawn) if wide else leaf


def _widen(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor) and leaf.dtype in _WIDE:
        return leaf.to(_WIDE[leaf.dtype])
    return leaf


# -- comparing ---------------------------------------------------------------------------------


def compare_values(
    contestant: str,
    output: str,
    got: Results,
    eager: Results,
    reference: Results | None,
    why_no_reference: str = "",
    uses_random: bool = False,
) -> Accuracy:
    """One output of a contestant beside eager's and the float64 one."""

    def refuse(reason: str, error: float | None = None, eager_error: float | None = None) -> Accuracy:
        return Accuracy(contestant, output, error, eager_error, agrees=False, reason=reason)

    if output not in got:
        return refuse("missing: eager makes it")
    if output not in eager:
        return refuse(NOT_IN_EAGER)
    one, two = got[output], eager[output]
    truth = reference.get(output) if reference is not None else None
    if isinstance(one, _Held) and isinstance(two, _Held):
        return _compare_held(contestant, output, one, two, truth.parts if isinstance(truth, _Held) else None)
    if isinstance(one, float) and isinstance(two, float):
        one, two = torch.tensor(one, dtype=torch.float64), torch.tensor(two, dtype=torch.float64)
        eps = torch.finfo(torch.float32).eps  # it was read from a tensor, most likely of float32
    elif not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
        same = type(one) is type(two) and bool(one == two)
        return Accuracy(contestant, output, 0.0, 0.0) if same else refuse(f"{one!r}, eager has {two!r}")
    else:
        inexact = two.is_floating_point() or two.is_complex()
        eps = torch.finfo(two.dtype).eps if inexact else 0.0
    if one.shape != two.shape or one.dtype != two.dtype:
        return refuse(f"{one.dtype} {tuple(one.shape)}, eager has {two.dtype} {tuple(two.shape)}")
    one, two = _plain(one), _plain(two)
    wide = _plain(truth) if isinstance(truth, torch.Tensor) and truth.shape == two.shape else None
    if isinstance(truth, float):
        wide = torch.tensor(truth, dtype=torch.float64)
    if not eps:
        return _compare_exact(contestant, output, one, two, wide)
    if not torch.equal(one.isnan(), two.isnan()) or not _same_infinities(one, two):
        return refuse(_random_reason(uses_random) or "NaN or infinity where eager has none, or the reverse")
    finite = one.isfinite() & two.isfinite()
    difference = float((one - two)[finite].abs().max()) if bool(finite.any()) else 0.0
    if wide is None:
        kind = got[output].dtype if isinstance(got[output], torch.Tensor) else torch.float32
        least = 1e-5 if eps > 1e-10 else 1e-7
        agrees = torch.allclose(one, two, rtol=_rtol(kind), atol=least, equal_nan=True)
        reason = why_no_reference if agrees else _random_reason(uses_random) or "not close to eager"
        return Accuracy(contestant, output, None, None, difference, agrees, reason)
    error, eager_error = relative_error(one, wide), relative_error(two, wide)
    limit = FACTOR * eager_error + ULPS * eps
    if eager_error > NOISE:  # nothing but rounding noise, e.g. a gradient that is zero on paper
        limit = 10 * eager_error
    agrees = error <= limit
    reason = ""
    if not agrees:
        ratio = f"{times_text(error / eager_error)} times eager's" if eager_error else "eager is exact"
        reason = _random_reason(uses_random and error > 1e-2) or f"error {error:.1e}, {ratio}"
    return Accuracy(contestant, output, error, eager_error, difference, agrees, reason)


def relative_error(got: torch.Tensor, reference: torch.Tensor) -> float:
    """``|got - reference| / |reference|``, Frobenius, over the places where both are finite; the
    absolute error where the reference is zero."""
    finite = got.isfinite() & reference.isfinite()
    wanted, apart = reference[finite], got[finite] - reference[finite]
    size, error = float(torch.linalg.vector_norm(wanted)), float(torch.linalg.vector_norm(apart))
    if math.isfinite(size) and math.isfinite(error):
        return error / size if size > 0 else error
    largest = max(float(wanted.abs().max()), float(apart.abs().max()))  # its square is infinite
    size, error = (float(torch.linalg.vector_norm(each / largest)) for each in (wanted, apart))
    return error / size if size > 0 else error * largest


def _compare_held(
    contestant: str, output: str, one: _Held, two: _Held, reference: Results | None
) -> Accuracy:
    """Of what both hold: an attribute that one alone has was computed when it was asked for."""
    if one.kind is not two.kind:
        reason = f"{one.kind.__name__}, eager has {two.kind.__name__}"
        return Accuracy(contestant, output, None, None, agrees=False, reason=reason)
    found = [
        compare_values(contestant, name, one.parts, two.parts, reference)
        for name in one.parts
        if name in two.parts
    ]
    if not found:
        what = f"{NOT_COMPARED}: what a {one.kind.__name__} is cannot be told by tensors"
        return Accuracy(contestant, output, None, None, reason=what)
    for each in found:
        if not each.agrees:
            return dataclasses.replace(each, output=output, reason=f"{each.output}: {each.reason}")
    errors = [each.error for each in found if each.error is not None]
    eager = [each.eager_error for each in found if each.eager_error is not None]
    return Accuracy(contestant, output, max(errors, default=0.0), max(eager, default=None))


def _compare_exact(
    contestant: str, output: str, one: torch.Tensor, two: torch.Tensor, wide: torch.Tensor | None
) -> Accuracy:
    """Integers and booleans. Where the float64 run differs from eager (a tie, a rounding), either
    answer will do."""
    wrong = one != two
    if wide is not None and wide.dtype == one.dtype:
        wrong &= one != wide
    count = int(wrong.sum())
    share = count / max(1, one.numel())
    eager_share = float((two != wide).double().mean()) if wide is not None and two.numel() else 0.0
    reason = f"{count} of {one.numel()} differ from eager" if count else ""
    return Accuracy(contestant, output, share, eager_share, None, not count, reason)


def _plain(value: torch.Tensor) -> torch.Tensor:
    """Dense, without gradients, and as wide as it gets: float64, complex128, or the integers as they are."""
    value = value.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    if value.is_quantized:
        value = value.dequantize()
    if value.is_complex():
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.is_floating_point() else value


def _same_infinities(one: torch.Tensor, two: torch.Tensor) -> bool:
    where = one.isinf()
    return torch.equal(where, two.isinf()) and torch.equal(one[where], two[where])


def _rtol(dtype: torch.dtype) -> float:
    return {torch.float16: 1e-3, torch.bfloat16: 1.6e-2, torch.float64: 1e-7}.get(dtype, 1.3e-6)


def _random_reason(uses_random: bool) -> str:
    return "it draws its own random numbers, so values cannot be compared" if uses_random else ""
