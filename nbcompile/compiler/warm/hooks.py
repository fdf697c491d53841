"""AOTAutograd's cache, made to take graphs of ours: all that is private to torch here.

AOTAutograd makes a key of a captured graph, looks it up, and stores what it made under it when the last of
its halves has been compiled, which for a backward graph may be long after. These four functions are wrapped,
once a process. A key of ours begins with :data:`PREFIX`, and what has none is handed to torch's own function
as it is, so Inductor's cache stays what it was.
"""

from __future__ import annotations

import functools
import inspect
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from nbcompile.compiler.runtime.cache import DiskCache
from nbcompile.compiler.warm.kept import Backward, Half, Kept, find, store

PREFIX = "nbcompile-"
_KEPT = "_nbcompile_kept"

_log = logging.getLogger("nbcompile")
_looking = threading.local()


@contextmanager
def looking(key_of: Callable[[str], str], inference: list[Any]) -> Iterator[None]:
    """Within it the next graph that AOTAutograd asks its cache for is one of ours: ``key_of`` makes the key
    from torch's own. A graph that is found and has no backward is put into ``inference``."""
    _looking.key_of, _looking.inference = key_of, inference
    try:
        yield
    finally:
        _looking.key_of = _looking.inference = None


def mark(call: Any, kept: Kept) -> None:
    """Tell AOTAutograd that a compiled graph can be stored, and as what."""
    call._fx_graph_cache_key = PREFIX  # without one, nothing is stored
    setattr(call, _KEPT, kept)


def serializable(compiler: Callable[..., Any]) -> Any:
    """A compiler for whose graphs AOTAutograd asks its cache."""
    from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler

    return SerializableAOTDispatchCompiler(object, compiler)  # type: ignore[type-var]


@functools.cache
def install() -> str:
    """Put the hooks in place. Why not, where this torch has nothing to put them on; empty if all is well."""
    try:
        from torch._functorch._aot_autograd import autograd_cache
        from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler  # noqa: F401

        cache: Any = autograd_cache.AOTAutogradCache
        lookup, save, make_entry = cache._lookup, cache.save, cache.make_entry
        expression, key = cache.generate_guards_expression, autograd_cache.autograd_cache_key
        names = [[*inspect.signature(each).parameters] for each in (lookup, save, make_entry, expression)]
        wanted = [{"key", "args"}, {"key", "entry"}, {"compiled_fw_func", "compiled_bw_func"}, {"cache_info"}]
        if any(not want <= {*have} for want, have in zip(wanted, names, strict=True)):
            return "AOTAutograd's cache of this torch is not the one that is known"
        cache.evaluate_guards, cache._filter_backed_symints  # noqa: B018
    except Exception as error:  # whatever another torch has there, compiling does without
        _log.debug("the cache of whole graphs", exc_info=True)
        return f"AOTAutograd has no such cache in this torch ({type(error).__name__}: {error})"
    autograd_cache.autograd_cache_key = _key(key)
    cache._lookup = staticmethod(_lookup(lookup, cache))
    cache.save = staticmethod(_save(save))
    cache.make_entry = staticmethod(_make_entry(make_entry))
    cache.generate_guards_expression = staticmethod(_expression(expression, cache))
    return ""


def _key(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def autograd_cache_key(*args: Any, **keywords: Any) -> Any:
        key_of, _looking.key_of = getattr(_looking, "key_of", None), None
        key, told = original(*args, **keywords)
        return (key if key_of is None else PREFIX + key_of(key)), told

    return autograd_cache_key


def _lookup(original: Callable[..., Any], cache: Any) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def lookup(*args: Any, **keywords: Any) -> Any:
        given = parameters.bind(*args, **keywords).arguments
        if not given["key"].startswith(PREFIX):
            return original(*args, **keywords)
        key = given["key"].removeprefix(PREFIX)
        found = find(key)
        if found is None:
            return None
        entry = found[0]
        # As torch does: with the numbers, so that a miss leaves no guard behind; a hit adds them later.
        hints = [size.node.hint for size in cache._filter_backed_symints(given["args"])]
        if entry.guards_expr and not cache.evaluate_guards(entry.guards_expr, hints):
            DiskCache.shared().remove(key)  # else what is made now would not take its place
            return None
        if entry.compiled_bw is None:
            _looking.inference.append(entry.compiled_fw.made)
        context = torch._guards.TracingContext.try_get()
        if context is not None:  # what tracing would have left there, for whoever asks what is overwritten
            context.fw_metadata = entry.runtime_metadata
        return found

    return lookup


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def save(*args: Any, **keywords: Any) -> Any:
        given = parameters.bind(*args, **keywords).arguments
        if not given["key"].startswith(PREFIX):
            return original(*args, **keywords)
        from torch._dynamo.utils import counters

        entry = given["entry"]
        if entry is None or entry.guards_expr is None:  # what it supposes of sizes could not be written down
            counters["aot_autograd"]["autograd_cache_bypass"] += 1
            return None
        try:
            store(given["key"].removeprefix(PREFIX), entry)
        except Exception as error:  # of what torch puts around a graph, or holds in it
            _log.debug("a graph was not kept: %s", error, exc_info=True)
            counters["aot_autograd"]["autograd_cache_bypass"] += 1
        else:
            counters["aot_autograd"]["autograd_cache_saved"] += 1
        return None

    return save


def _make_entry(original: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(original)

    @functools.wraps(original)
    def make_entry(*args: Any, **keywords: Any) -> Any:
        given = parameters.bind(*args, **keywords).arguments
        halves = [getattr(given[f"compiled_{half}_func"], _KEPT, None) for half in ("fw", "bw")]
        if halves[0] is None:
            return original(*args, **keywords)
        try:
            entry = original(*args, **keywords)
        except Exception:  # a setting of torch's was changed since: a compile is not to fail by its cache
            _log.debug("no entry was made of a graph", exc_info=True)
            return None
        entry.compiled_fw = Half(halves[0])
        old = entry.compiled_bw
        if old is not None and halves[1] is not None:
            numbers = old.backward_state_indices, old.num_symints_saved_for_bw_
            entry.compiled_bw = Backward(halves[1], *numbers)
        return entry

    return make_entry


def _expression(original: Callable[..., Any], cache: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def generate_guards_expression(cache_info: Any) -> str | None:
        if not cache_info.cache_key.startswith(PREFIX):
            return original(cache_info)  # type: ignore[no-any-return]
        try:
            return (original(cache_info) or "") if _is_told(cache_info.forward_symints, cache) else None
        except Exception:  # a compile is not to fail by its cache
            _log.debug("guards that cannot be written down", exc_info=True)
            return None

    return generate_guards_expression


def _is_told(sizes: list[Any], cache: Any) -> bool:
    """Whether an expression over the sizes that come in tells all that the graph supposes. Torch's leaves out
    what is supposed of others, and of a size that has become a number or another size since."""
    env = cache._get_shape_env()
    if env is None:
        return not sizes
    unchanged = all(size.node._expr == size.node.expr for size in sizes)
    return unchanged and len(env.get_pruned_guards(sizes)) == len(env.guards)
