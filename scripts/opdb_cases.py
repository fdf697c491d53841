"""The programs of torch's own databases of operators and modules, and what they give in eager and compiled.

A case is one sample of one entry: a program of tensors, called on copies of its inputs under one seed. Its
results are what it returns, what it leaves in its inputs, and, where gradients are asked for, those of its
inputs and parameters for weights drawn at random.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

SEED = 1234
SLACK = 2.0
"""How many times eager's error against float64 a result may have that is not eager's own."""


@dataclass(frozen=True)
class Asked:
    """Which cases: of which database, dtype and device, with gradients or not, every sample or the first."""

    database: str = "op_db"
    dtype: str = "float32"
    device: str = "cpu"
    gradients: bool = False
    every: bool = False
    bare_random: bool = False


@dataclass(frozen=True)
class Case:
    """``make(to)`` gives a program and its arguments, the floating point among them of dtype ``to`` (None:
    as they are); ``settle`` makes of a result what its gradients are well defined for (a basis is not)."""

    make: Callable[[Any], tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]
    settle: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Entry:
    name: str
    cases: Callable[[], Iterator[Case]]


def entries(asked: Asked) -> list[Entry]:
    """The database's entries that have the dtype, in its order."""
    return list((_operators if asked.database == "op_db" else _modules)(asked))


def _operators(asked: Asked) -> Iterator[Entry]:
    import torch
    from torch.testing._internal import common_methods_invocations as database

    if asked.bare_random:
        database.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
    dtype = getattr(torch, asked.dtype)

    def cases(op: Any) -> Iterator[Case]:
        grad = (
            asked.gradients and op.supports_autograd and dtype in op.supported_backward_dtypes(asked.device)
        )
        torch.manual_seed(SEED)
        for sample in op.sample_inputs(asked.device, dtype, requires_grad=grad):
            yield _of_sample(op.op, sample)

    for op in database.op_db:
        if dtype in op.supported_dtypes(asked.device):
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)
            yield Entry(name, lambda op=op: cases(op))


def _of_sample(op: Any, sample: Any) -> Case:
    def program(given: Any, args: Any, kwargs: Any) -> Any:
        return op(given, *args, **kwargs)

    def make(to: Any) -> Any:
        return program, copied((sample.input, sample.args, sample.kwargs), to), {}

    return Case(make, sample.output_process_fn_grad)


def _modules(asked: Asked) -> Iterator[Entry]:
    import torch
    from torch.testing._internal.common_modules import module_db

    dtype = getattr(torch, asked.dtype)

    def cases(info: Any, training: bool) -> Iterator[Case]:
        torch.manual_seed(SEED)
        arguments = {"device": asked.device, "dtype": dtype, "requires_grad": asked.gradients}
        for given in info.module_inputs_func(info, training=training, **arguments):
            if given.forward_input is not None:
                yield _of_module(info.module_cls, given, asked, training)

    for info in module_db:
        for training in (False, True) if info.train_and_eval_differ else (True,):
            if dtype in info.dtypes:
                name = f"{info.name}{'' if training else ', eval'}"
                yield Entry(name, lambda info=info, training=training: cases(info, training))


def _of_module(cls: Any, given: Any, asked: Asked, training: bool) -> Case:
    import torch

    built, forward = given.constructor_input, given.forward_input

    def make(to: Any) -> Any:
        torch.manual_seed(SEED)
        module = cls(*built.args, **built.kwargs).to(device=asked.device, dtype=getattr(torch, asked.dtype))
        module.train(training)
        module = module.to(to) if to is not None else module
        args, kwargs = copied((forward.args, forward.kwargs), to)
        return module, tuple(args), kwargs

    return Case(make)


def copied(value: Any, to: Any = None) -> Any:
    """A nest with its tensors copied, and whatever else is not a number too."""
    import torch
    from torch.utils import _pytree

    def copy_of(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return copy.deepcopy(leaf) if isinstance(leaf, torch.Generator) else _wide(leaf, to)
        made = leaf.detach().clone()
        if to is not None and made.is_floating_point():
            made = made.to(to)
        elif to is not None and made.is_complex():
            made = made.to(torch.complex128)
        return made.requires_grad_(leaf.requires_grad)

    return _pytree.tree_map(copy_of, value)


def _wide(leaf: Any, to: Any) -> Any:
    import torch

    narrow = (torch.float32, torch.float16, torch.bfloat16)
    return to if to is not None and isinstance(leaf, torch.dtype) and leaf in narrow else leaf


def results(case: Case, compile_it: Callable[[Any], Any], to: Any = None) -> Any:
    """Results of a case by name, or the exception: of eager where ``compile_it`` gives its program back."""
    import torch
    from torch.utils import _pytree

    try:
        program, args, kwargs = case.make(to)
        given = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        owned = dict(program.named_parameters()) if isinstance(program, torch.nn.Module) else {}
        torch.manual_seed(SEED)
        out = compile_it(program)(*args, **kwargs)
        found = {f"result {place}": leaf for place, leaf in enumerate(_pytree.tree_leaves(out))}
        found |= {f"input {place}": leaf.detach() for place, leaf in enumerate(given)}
        if isinstance(program, torch.nn.Module):
            found |= {f"buffer {name}": buffer for name, buffer in program.named_buffers()}
        roots = _pytree.tree_leaves(case.settle(out) if case.settle else out)
        roots = [each for each in roots if isinstance(each, torch.Tensor) and each.requires_grad]
        if roots:
            torch.autograd.backward(roots, [_weights(each) for each in roots])
        for name, leaf in ({f"input {n}": leaf for n, leaf in enumerate(given)} | owned).items():
            if leaf.is_leaf and leaf.grad is not None:
                found[f"gradient of {name}"] = leaf.grad
    except Exception as error:
        return error
    return {name: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for name, leaf in found.items()}


def _weights(root: Any) -> Any:
    """The same numbers for every dtype."""
    import torch

    generator = torch.Generator().manual_seed(SEED)
    return torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root.device, root.dtype)


def difference(got: Any, expected: Any, exact: Callable[[], Any]) -> str:
    """Empty where two results agree: within torch's default tolerances, or where the first's error against
    float64 is at most about that of the second. Else the reason in one line."""
    import torch

    if isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor):
        if found := _unlike(got, expected):
            return found
        try:
            torch.testing.assert_close(got, expected, equal_nan=True)
        except (AssertionError, TypeError, ValueError, RuntimeError) as error:
            reference = exact() if expected.is_floating_point() or expected.is_complex() else None
            if isinstance(reference, torch.Tensor) and _as_near(got, expected, reference):
                return ""
            return describe(error)
        return ""
    if type(got) is not type(expected) or (got != expected and got == got):
        return f"{got!r}, eager has {expected!r}"
    return ""


def _unlike(got: Any, expected: Any) -> str:
    for what in ("dtype", "shape", "layout", "device"):
        one, two = getattr(got, what), getattr(expected, what)
        if one != two:
            return f"{what} is {one}, eager's {two}"
    return ""


def _as_near(got: Any, expected: Any, reference: Any) -> bool:
    import torch

    if reference.shape != got.shape:
        return False
    ours, theirs = got.to(reference.dtype), expected.to(reference.dtype)
    too_large = torch.isinf(theirs) & (reference.abs() <= torch.finfo(got.dtype).max)  # on the way only
    if not torch.equal(torch.isfinite(ours) & ~too_large, torch.isfinite(theirs)):
        return False
    if not torch.allclose(ours[too_large], reference[too_large], rtol=4 * torch.finfo(got.dtype).eps, atol=0):
        return False
    size = reference.abs().nan_to_num(0, 0, 0).max() if reference.numel() else 0
    noise = torch.finfo(got.dtype).eps * size
    off = [(one - reference).abs().nan_to_num(0, 0, 0).max() for one in (ours, theirs)]
    return bool(off[0] <= SLACK * off[1] + noise)


def verdict(
    name: str, got: Any, expected: Any, exact: Callable[[], Any], again: Callable[[], Any]
) -> tuple[str, str]:
    """The status of a case, and why; ``exact`` gives eager's results in float64, ``again`` as they are."""
    import torch

    if isinstance(expected, Exception):
        if isinstance(got, Exception):
            return "both raise", describe(expected)
        return "disagree", f"eager raises {describe(expected)}"
    if isinstance(got, Exception):
        return "error", describe(got)
    if name in UNINITIALISED:
        same = all(not _unlike(got[key], expected[key]) and got[key].stride() == expected[key].stride()
                   for key in expected if hasattr(expected[key], "stride"))  # fmt: skip
        return ("uninitialised", "") if same else ("disagree", "dtype, shape or strides")
    if missing := got.keys() ^ expected.keys():
        return "disagree", f"only one of them has {', '.join(sorted(missing))}"
    wide: list[Any] = []

    def reference(key: str) -> Any:
        if not wide:
            wide.append(exact())
        return wide[0].get(key) if isinstance(wide[0], dict) else None

    others: list[Any] = []

    def differs_from_itself(key: str) -> bool:
        """Whether eager, under one seed, gives another number as well (memory that nobody has written)."""
        one = expected[key]
        if isinstance(one, torch.Tensor) and (one.is_floating_point() or one.is_complex()):
            return False
        others.extend(again() for _ in range(AGAIN if not others else 0))
        return any(bool(difference(each[key], one, lambda: None)) for each in others)

    left: list[str] = []
    for key in expected:
        if found := difference(got[key], expected[key], lambda key=key: reference(key)):
            if not differs_from_itself(key):
                return "disagree", f"{key}: {found}"
            left.append(key)
    return ("uninitialised", f"eager gives others each time: {', '.join(left)}") if left else ("agree", "")


AGAIN = 4
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


def describe(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:3])}"[:240]
