"""Names to the ranks and back.

To the ranks goes a copy of every name that the cell reads. Back comes what the cell changed, into the very
objects of the session: a module's parameters, buffers, gradients and training flags, an optimizer's state,
tensors and containers changed in place; then the names that the cell bound. What refers to an object of the
session (an optimizer made in the cell holds the model's parameters) refers to it again when it is back.
"""

from __future__ import annotations

import io
import pickle
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from nbcompile.api import Compiled
from nbcompile.bench.ranks.task import SHOWN
from nbcompile.errors import RanksError

_CONTAINERS = (list, dict, set)
Reference = tuple[str, str]  # a name of the session, and the parameter of that module (or "")


def _pickle_module() -> Any:
    """cloudpickle, which takes functions and classes of a notebook by value; else plain pickle."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle


def pack_names(names: Mapping[str, Any]) -> bytes:
    """The values of these names, in one piece: what they share they share on the ranks too. RanksError,
    naming the first that cannot be sent."""
    plain = {name: _uncompiled(value) for name, value in names.items()}
    gradients = {name: found for name, value in plain.items() if (found := _gradients(value))}
    modules = {name: value.__name__ for name, value in plain.items() if isinstance(value, types.ModuleType)}
    values = {name: value for name, value in plain.items() if name not in modules}
    try:
        return _saved((modules, values, gradients, _random()))
    except Exception as error:
        for name, value in values.items():
            try:
                _saved(value)
            except Exception as inner:
                raise RanksError(
                    f"{name} cannot be sent to the ranks: {type(inner).__name__}: {inner}",
                    advice="Run: pip install cloudpickle"
                    if _pickle_module() is pickle
                    else "Make it inside the cell.",
                ) from error
        raise RanksError(f"the cell's names cannot be sent to the ranks: {error}") from error


def unpack_names(data: bytes, device: torch.device) -> dict[str, Any]:
    """On a rank: the names again. What was on a GPU is on this rank's; the random state is the session's."""
    import importlib

    def place(storage: Any, location: str) -> Any:
        return storage.cuda(device.index) if location.startswith("cuda") else storage

    modules, values, gradients, random = torch.load(io.BytesIO(data), map_location=place, weights_only=False)
    _set_random(random)
    for name, found in gradients.items():
        for path, tensor in _leaves(values[name]).items():
            tensor.grad = found.get(path)
    return {**{name: importlib.import_module(module) for name, module in modules.items()}, **values}


def _random() -> tuple[torch.Tensor, torch.Tensor | None]:
    """The state of torch's generators: the CPU's, and the present GPU's where one is in use."""
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
    return torch.get_rng_state(), cuda


def _set_random(state: tuple[torch.Tensor, torch.Tensor | None]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state[1])


def _saved(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, pickle_module=_pickle_module())
    return buffer.getvalue()


def _leaves(value: Any) -> dict[str, torch.Tensor]:
    """The tensors of a value that gather a gradient: a module's parameters by their names, or itself."""
    if isinstance(value, torch.nn.Module):
        return dict(value.named_parameters())
    return {"": value} if isinstance(value, torch.Tensor) and value.is_leaf and value.requires_grad else {}


def _gradients(value: Any) -> dict[str, torch.Tensor]:
    """What they have gathered. Pickle leaves it out, and what runs on the ranks is added to it."""
    return {path: leaf.grad for path, leaf in _leaves(value).items() if leaf.grad is not None}


def cut_off(names: Mapping[str, Any]) -> list[str]:
    """A sentence for each tensor that goes to the ranks without what it was computed from."""
    return [
        f"{name} went to the ranks as its value alone: gradients do not go back to what it was computed from"
        for name, value in names.items()
        if isinstance(value, torch.Tensor) and value.grad_fn is not None
    ]


def _uncompiled(value: Any) -> Any:
    if isinstance(value, Compiled):
        return value.__wrapped__
    return value._orig_mod if isinstance(value, torch._dynamo.OptimizedModule) else value


def whole(value: Any) -> Any:
    """A tensor that is spread over the ranks, gathered (all ranks must call); any other as it is."""
    if isinstance(value, torch.Tensor) and hasattr(value, "full_tensor"):
        value = value.full_tensor()
    return value.detach() if isinstance(value, torch.Tensor) else value


class Sent:
    """On a rank: what came in, so that it is known what changed, and what is a session's own object."""

    def __init__(self, names: Mapping[str, Any], apart: tuple[str, ...]) -> None:
        self.names = dict(names)
        self.apart = frozenset(apart)  # this rank has only its part of these
        self.versions = {n: v._version for n, v in self.names.items() if isinstance(v, torch.Tensor)}

    def pack(self, scope: Mapping[str, Any], back: Iterable[str], shown: Any) -> tuple[bytes, list[str]]:
        """What is to go back, of names the cell bound those in ``back``, and a note for each that cannot.
        Collective where parameters are spread over the ranks: every rank calls it."""
        notes: list[str] = []
        changed = [n for n, version in self.versions.items() if self.names[n]._version != version]
        notes += [f"{n} was changed in place on each rank's part of it: not brought back"
                  for n in changed if n in self.apart]  # fmt: skip
        notes += [f"{n} has a gradient for each rank's part of it: none is brought back"
                  for n in self.apart if _gradients(self.names[n])]  # fmt: skip
        notes += [f"{n} holds tensors that gathered gradients: these stay on the ranks"
                  for n, value in self.names.items() if _holds_gradients(value)]  # fmt: skip
        state = {
            "gradients": {n: whole(v.grad) if v.grad is not None else None for n, v in self._gathering()},
            "modules": {n: _module_state(v) for n, v in self._of(torch.nn.Module)},
            "optimizers": {n: _optimizer_state(v) for n, v in self._of(torch.optim.Optimizer)},
            "tensors": {n: whole(self.names[n]) for n in changed if n not in self.apart},
            "random": _random(),
            "deleted": [n for n in self.names if n not in scope],
        }
        known = self._references()
        bound = {
            name: scope[name]
            for name in back
            if not name.startswith("__") and self.names.get(name) is not scope[name]
        }
        bound[SHOWN] = shown
        contents = {n: v for n, v in self.names.items() if type(v) in _CONTAINERS}
        for part in (bound, contents):
            for name in list(part):
                try:
                    _packed(part[name], {} if part is contents else known)
                except Exception as error:
                    del part[name]
                    what = "the cell's value" if name == SHOWN else name
                    notes.append(f"{what} stays on the ranks: {type(error).__name__}: {error}")
        # A container's own id must not stand for it here: this is what it holds.
        inside = {key: ref for key, ref in known.items() if key not in {id(v) for v in contents.values()}}
        return pickle.dumps((_packed((state, contents), inside), _packed(bound, known))), notes

    def _of(self, kind: type) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.names.items() if isinstance(value, kind)]

    def _gathering(self) -> list[tuple[str, torch.Tensor]]:
        """The tensors that are no module's and gather a gradient."""
        return [
            (name, value)
            for name, value in self._of(torch.Tensor)
            if _leaves(value) and name not in self.apart
        ]

    def _references(self) -> dict[int, Reference]:
        found: dict[int, Reference] = {}
        for name, value in self.names.items():
            if isinstance(value, torch.nn.Module):
                for path, tensor in (*value.named_parameters(), *value.named_buffers()):
                    found.setdefault(id(tensor), (name, path))
                found[id(value)] = (name, "")
            elif isinstance(value, torch.Tensor | torch.optim.Optimizer | list | dict | set):
                if name not in self.apart:
                    found[id(value)] = (name, "")
        return found


def take_back(data: bytes, session: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """In the session: bring its objects up to date; returns the names that the cell bound (with
    :data:`~nbcompile.bench.ranks.task.SHOWN`, the value of its last expression) and those that it deleted."""

    def resolve(reference: Reference) -> Any:
        name, path = reference
        value = _uncompiled(session[name])
        for part in path.split(".") if path else ():
            value = getattr(value, part)
        return value

    first, second = pickle.loads(data)
    state, contents = _unpacked(first, resolve)
    for name, saved in state["modules"].items():
        _load_module(_uncompiled(session[name]), saved)
    for name, saved in state["optimizers"].items():
        session[name].load_state_dict(saved)
    with torch.no_grad():
        for name, value in state["tensors"].items():
            session[name].copy_(value)
    for name, gradient in state["gradients"].items():
        _set_gradient(session[name], gradient)
    for name, value in contents.items():
        mine = session[name]
        if isinstance(mine, list):
            mine[:] = value
        else:
            mine.clear()
            mine.update(value)
    _set_random(state["random"])
    return _unpacked(second, resolve), list(state["deleted"])


def _module_state(module: torch.nn.Module) -> dict[str, Any]:
    tensors, gradients = {}, {}
    for name, parameter in module.named_parameters():
        tensors[name] = whole(parameter)
        gradients[name] = None if parameter.grad is None else whole(parameter.grad)
    for name, buffer in module.named_buffers():
        tensors[name] = whole(buffer)
    training = {name: part.training for name, part in module.named_modules()}
    return {"tensors": tensors, "gradients": gradients, "training": training}


def _load_module(module: torch.nn.Module, saved: Mapping[str, Any]) -> None:
    mine = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    with torch.no_grad():
        for name, value in saved["tensors"].items():
            value = value.to(mine[name].device)
            if not torch.equal(mine[name], value):
                mine[name].copy_(value)
        for name, gradient in saved["gradients"].items():
            _set_gradient(mine[name], gradient)
    for name, part in module.named_modules():
        part.training = saved["training"].get(name, part.training)


def _set_gradient(leaf: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Where the session's tensor has a history, it came to the ranks without it and gathers none."""
    if not leaf.is_leaf:
        return
    if gradient is not None and leaf.grad is not None and torch.equal(leaf.grad, gradient.to(leaf.device)):
        return  # whoever holds it, holds it still
    leaf.grad = None if gradient is None else gradient.to(leaf.device)


def _holds_gradients(value: Any) -> bool:
    if type(value) not in _CONTAINERS:
        return False
    items = value.values() if isinstance(value, dict) else value
    return any(_gradients(each) for each in items if isinstance(each, torch.Tensor))


def _optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    state = optimizer.state_dict()
    held = {
        key: {name: whole(value) for name, value in values.items()} for key, values in state["state"].items()
    }
    return {**state, "state": held}


def _packed(value: Any, known: Mapping[int, Reference]) -> bytes:
    base: type[pickle.Pickler] = getattr(_pickle_module(), "Pickler", pickle.Pickler)

    class Returning(base):  # type: ignore[valid-type, misc]
        def persistent_id(self, item: Any) -> Reference | None:
            return known.get(id(item))

        def reducer_override(self, item: Any) -> Any:
            if isinstance(item, torch.Tensor) and (hasattr(item, "full_tensor") or item.grad_fn is not None):
                return whole(item).__reduce_ex__(pickle.DEFAULT_PROTOCOL)
            above = getattr(super(), "reducer_override", None)
            return NotImplemented if above is None else above(item)

    buffer = io.BytesIO()
    Returning(buffer, pickle.DEFAULT_PROTOCOL).dump(value)
    return buffer.getvalue()


def _unpacked(data: bytes, resolve: Callable[[Reference], Any]) -> Any:
    class Back(pickle.Unpickler):
        def persistent_load(self, reference: Any) -> Any:
            return resolve(reference)

    return Back(io.BytesIO(data)).load()
