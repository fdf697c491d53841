"""Save and restore everything a measured run may change, bit for bit, keeping every object's identity.

A :class:`Snapshot` walks the Python objects reachable from its roots. For each *storage* (the memory
that views and aliases share) it keeps one copy of the bytes; for each tensor its shape, gradient and
flags; for each mutable container (dict, list, set, instance ``__dict__``, class of the user's own, closure
cell, global) a shallow copy. Restoring writes these back in place: a view stays a view, an optimizer still
holds the very parameters it held. Bytes are written through the storage, so no autograd version moves.
"""

from __future__ import annotations

import functools
import operator
import random
import sys
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from nbcompile.bench.measure.code_objects import INSTALLED, is_users, is_users_class, names_in
from nbcompile.bench.measure.interrupts import FinishFirst
from nbcompile.bench.measure.room import Room
from nbcompile.bench.measure.tensor_state import (
    SavedStorage,
    SavedTensor,
    copy_of,
    hooks_of,
    layout_differs,
    put_back_layout,
    put_back_storage,
    put_back_tensor,
    same_bytes,
    storages_of,
    tensor_differs,
)
from nbcompile.bench.process_state import ProcessState
from nbcompile.errors import MeasureError

_ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, types.ModuleType, types.CodeType,
    types.BuiltinFunctionType, types.MethodWrapperType, property, torch.dtype, torch.device, torch.Size,
    torch.layout, torch.memory_format, weakref.ref,
)  # fmt: skip
_ITERATORS = (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType)
# Instances of these packages are the session itself, never the program's state.
_SKIPPED_PACKAGES = frozenset({"IPython", "ipykernel", "logging", "threading", "zmq", "tornado", "traitlets"})
# Compilers' own bookkeeping: putting that back would throw compiled code away, or worse.
_COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch.fx", "nbcompile.")
_MAX_OBJECTS = 500_000


class Snapshot:
    """The state reachable from ``roots`` (a mapping of names to objects) and the random generators.

    Example::

        before = Snapshot({"model": model, "x": x})
        model(x).sum().backward()
        before.restore()

    ``unrestorable`` names what was found that no restore can rewind (a generator, an open file);
    ``tensors`` lists the tensors found by name; ``bytes`` is the memory the copies take.
    Raises MeasureError if more than 500,000 objects are reachable, and, before copying, where the copies
    would take more than half of the memory that is free.
    """

    def __init__(self, roots: Mapping[str, Any], *, copies: bool = True) -> None:
        self._roots, self._copies = roots, copies  # without copies, tensors' values are not kept
        self._tensors: dict[int, SavedTensor] = {}
        self._storages: dict[int, SavedStorage] = {}
        self._undo: list[tuple[Callable[[], bool], Callable[[], object]]] = []  # (changed?, put back)
        self._keep: list[Any] = []  # ids in _seen stay valid while the objects live
        self._seen: set[int] = set()
        self._tensor_names: set[str] = set()
        # What is walked after all else, so that a parameter has its name from where the program has it:
        # optimizers, then entries of dicts by tensors (name, key, item).
        self._optimizers: deque[tuple[str, Any]] = deque()
        self._by_tensor: deque[tuple[str, torch.Tensor, Any]] = deque()
        self._room = Room()
        self.unrestorable: tuple[str, ...] = ()
        self._process = ProcessState()
        self._walk(roots)

    @property
    def bytes(self) -> int:
        """Memory the saved copies take, in bytes."""
        return sum(saved.size for saved in self._storages.values())

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor found, by the path it was first reached by, e.g. ``model.layer.weight``, with a number
        where another was reached by the same one."""
        return {saved.name: saved.tensor for saved in self._tensors.values()}

    def changed(self) -> tuple[str, ...]:
        """Names of what differs from the snapshot now: tensors by name, ``"objects"``, ``"random"``."""
        stale = {key for key, saved in self._storages.items() if not same_bytes(saved)}
        names = [
            saved.name
            for saved in self._tensors.values()
            if any(key in stale for key, _ in storages_of(saved.alias)) or tensor_differs(saved)
        ]
        if self._objects_changed():
            names.append("objects")
        if self._process.random_changed():
            names.append("random")
        return tuple(names)

    def moves_on(self, run: Callable[[], object]) -> bool:
        """Whether each run of the program changes Python objects anew (a counter, a learning rate). One was
        made; unless that left them alone, this makes another. Dynamo sees other values at each call of such a
        program, so that calls in a row are not all of one compiled graph."""
        if not self._objects_changed():
            return False
        later = Snapshot(self._roots, copies=False)
        run()
        return later._objects_changed()

    def _objects_changed(self) -> bool:
        return any(differs() for differs, _ in self._undo)

    def mutated(self) -> dict[str, torch.Tensor]:
        """The tensors whose values or shape differ from the snapshot now, by name."""
        stale = {key for key, saved in self._storages.items() if not same_bytes(saved)}
        return {
            saved.name: saved.tensor
            for saved in self._tensors.values()
            if layout_differs(saved.tensor, saved.alias)
            or any(key in stale for key, _ in storages_of(saved.alias))
        }

    def placed(self) -> dict[str, torch.Tensor]:
        """The tensors that a run has put into objects, containers, closures or globals: what the roots lead
        to now and did not before, by name. Gradients apart, and what is found by the path of another (in a
        set) and so by no name."""
        if not self._objects_changed():
            return {}
        later = Snapshot(self._roots, copies=False)
        new = (saved for key, saved in later._tensors.items() if key not in self._tensors)
        return {saved.name: saved.tensor for saved in new if saved.named and not saved.name.endswith(".grad")}

    def restore(self) -> tuple[str, ...]:
        """Put everything back. Returns names of tensors whose autograd history could not be put back
        (their values were): a tensor that was not a leaf and was changed in place by the run. An interrupt
        waits until all is back."""
        with FinishFirst():
            return self._put_back()

    def _put_back(self) -> tuple[str, ...]:
        lost = []
        for memory in self._storages.values():
            put_back_storage(memory)
        # All dtypes first: a gradient can be given back only to a tensor of its own dtype.
        for saved in self._tensors.values():
            put_back_layout(saved)
        for saved in self._tensors.values():
            if not put_back_tensor(saved):
                lost.append(saved.name)
        for differs, put_back in self._undo:
            if differs():
                put_back()
        self._process.restore()
        return tuple(lost)

    # -- the walk ------------------------------------------------------------------------------

    def _walk(self, roots: Mapping[str, Any]) -> None:
        unrestorable: list[str] = []
        queue: deque[tuple[str, Any]] = deque(roots.items())
        while queue or self._optimizers or self._by_tensor:
            if queue and isinstance(queue[0][1], torch.optim.Optimizer):
                self._optimizers.append(queue.popleft())
                continue
            if not queue and not self._optimizers:
                queue.extend(self._next_by_tensor())
            name, value = (queue or self._optimizers).popleft()
            if isinstance(value, _ATOMS) or id(value) in self._seen:
                continue
            if len(self._seen) >= _MAX_OBJECTS:
                raise MeasureError(
                    f"more than {_MAX_OBJECTS} objects are reachable from {', '.join(roots)}.",
                    advice="Pass the tensors and modules the program uses, not what holds them.",
                )
            self._seen.add(id(value))
            self._keep.append(value)
            if isinstance(value, _ITERATORS) or (hasattr(value, "__next__") and _is_builtin(value)):
                unrestorable.append(f"{name} ({type(value).__name__})")
                continue
            queue.extend(self._visit(name, value))
        self.unrestorable = tuple(unrestorable)

    def _next_by_tensor(self) -> list[tuple[str, Any]]:
        """What an optimizer has of a parameter, ``optimizer.state[model.weight]``."""
        name, key, item = self._by_tensor.popleft()
        if id(key) not in self._tensors:  # only this dict has it: first it gets a name, then its entry
            self._by_tensor.appendleft((name, key, item))
            return [(f"{name}.key", key)]
        return [(f"{name}[{self._tensors[id(key)].name}]", item)]

    def _visit(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        """Save ``value`` itself; yield what it leads to."""
        if isinstance(value, torch.Tensor):
            yield from self._visit_tensor(name, value)
        elif isinstance(value, torch.Generator):
            self._save_by(value.get_state, value.set_state, torch.equal)
        elif isinstance(value, random.Random):
            self._save_by(value.getstate, value.setstate, _equal)
        elif isinstance(value, dict):
            yield from self._visit_dict(name, value)
        elif isinstance(value, list | deque):
            self._save_by(lambda: list(value), lambda items: _refill(value, items), _identical)
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, set):
            self._save_by(lambda: set(value), lambda items: _refill_set(value, items), _equal)
            yield from ((f"{name}.item", item) for item in value)
        elif isinstance(value, bytearray):
            self._save_by(lambda: bytes(value), lambda data: value.__setitem__(slice(None), data), _equal)
        elif isinstance(value, tuple | frozenset):
            yield from ((f"{name}[{i}]", item) for i, item in enumerate(value))
        elif isinstance(value, type):
            yield from self._visit_class(name, value)
        elif isinstance(value, types.FunctionType):
            yield from self._visit_function(name, value)
        elif isinstance(value, types.MethodType):
            yield f"{name}.__self__", value.__self__
            yield f"{name}.__func__", value.__func__
        elif isinstance(value, types.CellType):
            yield from self._visit_cell(name, value)
        elif _is_numpy(value):
            yield from self._visit_numpy(name, value)
        else:
            yield from self._visit_instance(name, value)

    def _visit_tensor(self, name: str, tensor: torch.Tensor) -> Iterator[tuple[str, Any]]:
        alias = tensor.detach()
        grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
        version = -1 if tensor.is_inference() else tensor._version  # inference tensors keep no count
        grad_fn = tensor.grad_fn  # keeping the object alive keeps its identity meaningful
        found = self._unused(name)
        self._tensors[id(tensor)] = SavedTensor(
            tensor, alias, version, grad, grad_fn, tensor.requires_grad, found, found == name
        )
        for key, storage in storages_of(alias):
            if self._copies and key not in self._storages:
                self._room.take(storage.nbytes(), storage.device)
                self._storages[key] = SavedStorage(storage, copy_of(storage), storage.nbytes())
        if grad is not None:
            yield f"{name}.grad", grad
        yield from ((f"{name}'s hooks", hooks) for hooks in hooks_of(tensor))
        extra = getattr(tensor, "__dict__", None)
        if extra:
            yield f"{name}.__dict__", extra

    def _unused(self, name: str) -> str:
        """A tensor's name, no other's. Two are reached by one path where it goes through a set, or through a
        global that two modules call the same."""
        found, number = name, 2
        while found in self._tensor_names:
            found, number = f"{name} ({number})", number + 1
        self._tensor_names.add(found)
        return found

    def _visit_dict(self, name: str, value: dict[Any, Any]) -> Iterator[tuple[str, Any]]:
        self._save_by(
            lambda: list(value.items()),
            lambda items: _refill_dict(value, items),
            lambda one, two: (
                len(one) == len(two)
                and all(a[0] is b[0] and a[1] is b[1] for a, b in zip(one, two, strict=True))
            ),
        )
        for key, item in list(value.items()):
            if isinstance(key, torch.Tensor):
                self._by_tensor.append((name, key, item))
                continue
            yield f"{name}[{key!r}]", item
            if not isinstance(key, _ATOMS):
                yield f"{name}.key", key

    def _visit_function(self, name: str, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        original = getattr(function, "_torchdynamo_orig_callable", None)  # what torch.compile wrapped
        if original is not None:
            yield name, original
        if function.__code__.co_filename.startswith(INSTALLED):
            return  # a library's function: its globals are not the program's state
        for cell_name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            yield f"{name}.{cell_name}", cell
        yield f"{name}.__defaults__", function.__defaults__
        yield f"{name}.__kwdefaults__", function.__kwdefaults__
        yield f"{name}.__dict__", function.__dict__
        names = sorted(each for each in names_in(function.__code__) if not each.startswith("__"))
        for global_name in names:
            self._save_global(function.__globals__, global_name)
            if global_name in function.__globals__:
                yield global_name, function.__globals__[global_name]
                yield from self._visit_module(global_name, function.__globals__[global_name], names)

    def _visit_module(self, name: str, value: Any, asked: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Of a module of the user's own, what may be ``asked`` of it."""
        if isinstance(value, types.ModuleType) and is_users(getattr(value, "__file__", None) or ""):
            for each in asked:
                self._save_global(vars(value), each)
                if each in vars(value):
                    yield f"{name}.{each}", vars(value)[each]

    def _save_global(self, scope: dict[str, Any], key: str) -> None:
        missing = object()

        def put(saved: Any) -> None:
            if saved is missing:
                scope.pop(key, None)
            else:
                scope[key] = saved

        self._save_by(lambda: scope.get(key, missing), put, operator.is_)

    def _visit_cell(self, name: str, cell: types.CellType) -> Iterator[tuple[str, Any]]:
        empty = object()

        def read() -> Any:
            try:
                return cell.cell_contents
            except ValueError:  # Python's way to say the cell is empty
                return empty

        def write(saved: Any) -> None:
            if saved is empty:
                del cell.cell_contents
            else:
                cell.cell_contents = saved

        self._save_by(read, write, operator.is_)
        if read() is not empty:
            yield name, cell.cell_contents

    def _visit_numpy(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.random.Generator):
            value = value.bit_generator
        if isinstance(value, numpy.random.BitGenerator):
            generator = value
            self._save_by(
                lambda: generator.state,
                lambda state: setattr(generator, "state", state),
                lambda one, two: repr(one) == repr(two),
            )
        elif isinstance(value, numpy.random.RandomState):
            self._save_by(value.get_state, value.set_state, lambda one, two: repr(one) == repr(two))
        elif isinstance(value, numpy.ndarray) and value.flags.writeable:
            array = value

            def write(saved: Any) -> None:
                array[...] = saved

            if self._copies:
                self._room.take(array.nbytes, torch.device("cpu"))
            self._save_by(array.copy, write, lambda one, two: one.tobytes() == two.tobytes())
            if array.dtype.hasobject:
                yield f"{name}.items", array.tolist()

    def _visit_instance(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if _package(type(value)) in _SKIPPED_PACKAGES:
            return
        if type(value).__module__.startswith(_COMPILERS):
            yield from ((name, inner) for inner in _compiled_targets(value))
            return
        if isinstance(value, functools.partial):
            yield from ((f"{name}.{part}", getattr(value, part)) for part in ("func", "args", "keywords"))
        yield type(value).__name__, type(value)
        yield from self._visit_attributes(name, value)
        for slot in _slots(type(value)):
            if hasattr(value, slot):
                self._save_slot(value, slot)
                yield f"{name}.{slot}", getattr(value, slot)

    def _visit_class(self, name: str, kind: type) -> Iterator[tuple[str, Any]]:
        """Of a class of the user's own, its attributes: a method may write them, or globals."""
        skipped = kind.__module__.startswith(_COMPILERS) or _package(kind) in _SKIPPED_PACKAGES
        if skipped or not is_users_class(kind):
            return
        for key in _members(kind):
            yield f"{name}.{key}", getattr(vars(kind)[key], "__func__", vars(kind)[key])
        self._save_by(
            lambda: _members(kind),
            lambda saved: _refill_class(kind, saved),
            lambda one, two: one.keys() == two.keys() and all(one[key] is two[key] for key in one),
        )
        yield from ((base.__name__, base) for base in kind.__bases__)

    def _visit_attributes(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            # Walked here rather than queued as a dict, so that names read model.layers.0.weight.
            self._seen.add(id(attributes))
            self._keep.append(attributes)
            for key, item in list(attributes.items()):
                inside = key in ("_parameters", "_buffers", "_modules")
                if inside and isinstance(value, torch.nn.Module) and isinstance(item, dict):
                    self._seen.add(id(item))
                    for _ in self._visit_dict(name, item):
                        pass  # saved; its children are yielded under shorter names below
                    yield from ((f"{name}.{child}", node) for child, node in item.items())
                else:
                    yield f"{name}.{key}", item
            for _ in self._visit_dict(name, attributes):
                pass

    def _save_slot(self, value: Any, slot: str) -> None:
        self._save_by(
            lambda: getattr(value, slot, None),
            lambda saved: setattr(value, slot, saved),
            operator.is_,
        )

    def _save_by(
        self, read: Callable[[], Any], write: Callable[[Any], object], same: Callable[[Any, Any], bool]
    ) -> None:
        saved = read()
        self._undo.append((lambda: not same(read(), saved), lambda: write(saved)))


# -- Python objects ----------------------------------------------------------------------------


def _equal(one: Any, two: Any) -> bool:
    return bool(one == two)


def _identical(one: list[Any], two: list[Any]) -> bool:
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def _refill(target: Any, items: list[Any]) -> None:
    target.clear()
    target.extend(items)


def _refill_set(target: set[Any], items: set[Any]) -> None:
    target.clear()
    target.update(items)


def _refill_dict(target: dict[Any, Any], items: list[tuple[Any, Any]]) -> None:
    # The base class's own methods: a subclass's __setitem__ may do more than set.
    base: Any = OrderedDict if isinstance(target, OrderedDict) else dict
    base.clear(target)
    for key, item in items:
        base.__setitem__(target, key, item)


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _members(kind: type) -> dict[str, Any]:
    return {key: value for key, value in vars(kind).items() if not key.startswith(("__", "_abc_"))}


def _refill_class(target: type, members: dict[str, Any]) -> None:
    now = _members(target)
    for key in now.keys() - members.keys():
        type.__delattr__(target, key)
    for key, value in members.items():
        if key not in now or now[key] is not value:
            type.__setattr__(target, key, value)


def _compiled_targets(value: Any) -> list[Any]:
    """What a compiler's wrapper wraps: torch.compile's of a module, or nbcompile.compile's."""
    inner = vars(value).get("_modules", {}).get("_orig_mod") if hasattr(value, "__dict__") else None
    target = vars(value).get("_target") if hasattr(value, "__dict__") else None
    return [found for found in (inner, target) if found is not None]


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        if base.__module__ == "builtins" or base.__module__.partition(".")[0] == "torch":
            continue
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if slot not in ("__dict__", "__weakref__") and not slot.startswith("__"):
                yield slot


def _is_builtin(value: Any) -> bool:
    if value is sys.stdout or value is sys.stderr or value is sys.stdin:
        return False  # what is printed is kept off the screen, not rewound
    return type(value).__module__ in ("builtins", "itertools", "_io", "torch.utils.data.dataloader")


def _is_numpy(value: Any) -> bool:
    return "numpy" in sys.modules and type(value).__module__.partition(".")[0] == "numpy"
