"""How one function is to be compiled, as one frozen value: what the calls that compile hand each other."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from nbcompile.near import did_you_mean
from nbcompile.options import MODES, Options
from nbcompile.record.compilation import Cell
from nbcompile.record.recorder import Recorder

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from nbcompile.backends.base import BackendArgument, GraphCompiler

F = TypeVar("F", bound=Callable[..., Any])
One = TypeVar("One", bound="DataclassInstance")
Two = TypeVar("Two", bound="DataclassInstance")


class CompileKeywords(TypedDict, total=False):
    """The fields of :class:`CompileSettings`, for the types of functions that take them as keywords."""

    backend: BackendArgument
    mode: str | None
    options: Mapping[str, Any] | None
    dynamic: bool | None
    fullgraph: bool
    name: str | None
    disable: bool
    recompile_limit: int | None
    shapes_spec: Any
    dynamic_shapes: Any


def settings_given(function: str, given: Mapping[str, Any]) -> CompileSettings:
    """What was given to a function by keywords. TypeError, as Python would raise it for that function."""
    names = [field.name for field in dataclasses.fields(CompileSettings)]
    for name in given:
        if name not in names:
            told = f"{function}() got an unexpected keyword argument {name!r}"
            raise TypeError(f"{told}. {did_you_mean(name, names)}".rstrip(". "))
    return CompileSettings(**given)


@dataclass(frozen=True)
class CompileSettings:
    """What torch.compile takes, and ``name``, as :func:`nbcompile.compile` explains them.

    ``mode=None`` leaves it to the options, and these to the backend. Made without a check, so that a sweep
    can name a point that makes no sense: :meth:`check` says what is wrong with it.
    """

    backend: BackendArgument = "nbcompile"
    mode: str | None = None
    options: Mapping[str, Any] | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    name: str | None = None
    disable: bool = False
    recompile_limit: int | None = None
    shapes_spec: Any = None
    dynamic_shapes: Any = None

    @property
    def ours(self) -> bool:
        """Whether this package's own compiler is meant."""
        return self.backend == "nbcompile"

    @property
    def backend_name(self) -> str:
        """What a record calls the backend."""
        if isinstance(self.backend, str):
            return self.backend
        from nbcompile.backends.base import Backend

        if isinstance(self.backend, Backend):
            return self.backend.name
        return str(getattr(self.backend, "__name__", "custom"))

    @property
    def own_options(self) -> Options:
        """What a record is made with: our own options where the backend is ours, else the mode alone, if it
        is one of ours. OptionError for an option that we do not have."""
        if self.ours:
            return Options.from_mapping(self.options, mode=self.mode)
        return Options.from_mapping(None, mode=self.mode if self.mode in MODES else None)

    @property
    def limits(self) -> dict[str, Any]:
        """What is given of torch.compile's arguments that not every version of torch has."""
        given = {name: getattr(self, name) for name in ("recompile_limit", "shapes_spec", "dynamic_shapes")}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def keywords(self) -> dict[str, Any]:
        """They as keyword arguments, also for a ``compile`` of the user's own: of what not everybody knows,
        only what was asked for."""
        always = ("backend", "mode", "options", "dynamic", "fullgraph")
        fields = dataclasses.fields(self)
        given = {field.name: getattr(self, field.name) for field in fields}
        return {f.name: given[f.name] for f in fields if f.name in always or given[f.name] != f.default}

    def check(self) -> None:
        """OptionError for an unknown backend, or a mode or option that it does not have. Loads it."""
        _ = self.own_options if self.ours else self.compiler()

    def compiler(self) -> GraphCompiler:
        """The compiler that any backend but ours is, bound to these. OptionError as :meth:`check` has it."""
        from nbcompile.backends.registry import resolve

        return resolve(self.backend, self.mode, self.options, self.dynamic)

    def recorder(
        self, cell: Cell | None = None, progress: Callable[[str], None] | None = None, name: str = ""
    ) -> Recorder:
        """A new record of what is compiled so. OptionError as of :attr:`own_options`."""
        return Recorder(self.own_options, self.backend_name, cell, progress, name, self.mode)

    def drawing_as_eager(self) -> CompileSettings:
        """The same, with the random numbers that eager draws: Inductor's own are others, and then a cell
        would not draw what it drew before, and nothing could be compared."""
        if self.backend != "inductor":
            return self
        return dataclasses.replace(self, options={"fallback_random": True, **(self.options or {})})


def keywords_of(*kinds: type, without: Collection[str] = ()) -> Callable[[F], F]:
    """Decorate a function that takes the fields of these dataclasses as ``**settings``, without some: help(),
    ``inspect.signature`` and tab completion list them, and no signature has to."""

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        listed = list(own.parameters.values())
        fields = (field for kind in kinds for field in dataclasses.fields(kind))
        more = [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type)
            for f in fields
            if f.name not in own.parameters and f.name not in without
        ]
        first = next(n for n, each in enumerate(listed) if each.kind > each.VAR_POSITIONAL)
        function.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[*listed[:first], *more, *(p for p in listed[first:] if p.kind is not p.VAR_KEYWORD)]
        )
        return function

    return decorate


def made_of(
    settings: Mapping[str, Any], first: type[One], second: type[Two], without: Collection[str] = ()
) -> tuple[One, Two]:
    """Values of two dataclasses from keywords that name fields of either. TypeError for any other name, and
    for those in ``without``."""
    known = [{field.name for field in dataclasses.fields(kind)} for kind in (first, second)]
    for name in settings:
        if name in without or not any(name in names for names in known):
            raise TypeError(f"got an unexpected keyword argument {name!r}")
    one, two = ({name: settings[name] for name in settings if name in names} for names in known)
    return first(**one), second(**two)
