"""Launches of Triton's interpreter in which each address is checked, and whole numbers are as wide
as on a device.

Written for the interpreter of Triton 3.9: it takes the place of its builder, its executor and its
rewriting of source, and does without what the interpreter does in vain, which pays for the checks.
"""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter

from support.poison.extents import Extent

_FROM = "poison.extent"


class OutOfBoundsError(AssertionError):
    """A kernel reads or writes what is not an element of the tensor it was given."""


@dataclass
class _Current:
    """The launch under way, for messages, and who listens to launches.

    Attributes:
        reached: Tensors that kernels reach by addresses in tables, by their addresses.
    """

    kernel: str = ""
    names: Callable[[], Mapping[str, Any]] = dict
    listener: Callable[..., None] | None = None
    is_patched: bool = False
    reached: Mapping[int, Extent] = field(default_factory=dict)


_current = _Current()


class _Builder(interpreter.InterpreterBuilder):
    """Lets pointers remember their tensor, and checks them where they are used."""

    def create_addptr(self, ptr, offset):
        return _carried(ptr, super().create_addptr(ptr, offset))

    def create_splat(self, ret_ty, arg):
        return _carried(arg, super().create_splat(ret_ty, arg))

    def create_broadcast(self, arg, shape):
        return _carried(arg, super().create_broadcast(arg, shape))

    def create_expand_dims(self, arg, axis):
        return _carried(arg, super().create_expand_dims(arg, axis))

    def create_int_to_ptr(self, val, dst_ty):
        made = super().create_int_to_ptr(val, dst_ty)
        extent = _current.reached.get(int(val.data.item()))
        if extent is not None:
            made.attr[_FROM] = extent
        return made

    def create_masked_load(self, ptrs, mask, other, cache_policy, is_volatile):
        _check(ptrs, mask.data, "reads")
        return super().create_masked_load(ptrs, mask, other, cache_policy, is_volatile)

    def create_masked_store(self, ptrs, value, mask, cache_policy):
        _check(ptrs, mask.data, "writes")
        return super().create_masked_store(ptrs, value, mask, cache_policy)

    def create_atomic_cas(self, ptr, cmp, val, sem, scope):
        _check(ptr, True, "changes")
        return super().create_atomic_cas(ptr, cmp, val, sem, scope)

    def create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope):
        _check(ptr, mask.data, "changes")
        return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)


def _carried(source, made):
    extent = source.attr.get(_FROM)
    if extent is not None:
        made.attr[_FROM] = extent
    return made


def _check(ptrs, mask, what: str) -> None:
    """Fail where a lane of `ptrs` that `mask` lets through is outside of its tensor."""
    extent = ptrs.attr.get(_FROM)
    if extent is None:
        raise OutOfBoundsError(f"{_current.kernel} {what} through a pointer of no argument")
    addresses = ptrs.data
    if not np.all(mask):
        addresses = addresses[np.broadcast_to(mask, addresses.shape)]
    if addresses.size == 0:
        return
    address = extent.outside(addresses.ravel())
    if address is not None:
        name = _name_of(extent)
        place = extent.place_of(address)
        raise OutOfBoundsError(f"{_current.kernel} {what} outside of {name}: {place}")


def _name_of(extent: Extent) -> str:
    for name, value in _current.names().items():
        if isinstance(value, torch.Tensor) and Extent.of(value) == extent:
            return name
    return "an argument"


class _Executor(interpreter.GridExecutor):
    """Runs on the tensors themselves: the interpreter would copy whole storages onto themselves."""

    def __call__(self, *args, **kwargs):
        _current.kernel = self.fn.__name__
        _current.names = lambda: dict(zip(self.arg_names, args, strict=False)) | kwargs
        if _current.listener is not None:
            _current.listener(self, args, kwargs)
        try:
            super().__call__(*args, **kwargs)
        finally:
            _current.is_patched = False

    def _init_args_hst(self, args_dev, kwargs):
        for value in (*args_dev, *kwargs.values()):
            assert not isinstance(value, torch.Tensor) or value.device.type == "cpu"
        return args_dev, kwargs

    def _restore_args_dev(self, args_dev, args_hst, kwargs, kwargs_hst):
        pass


class _Transformer(interpreter.ASTTransformer):
    """Makes the variable of a loop a number of the device, which wraps and divides as one does."""

    def visit_For(self, node):
        node = self.generic_visit(node)
        is_range = isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name)
        if is_range and node.iter.func.id == "range" and node.target.id != "_":
            name = node.target.id
            same = ast.Assign([ast.Name(name, ast.Store())], ast.Name(name, ast.Load()))
            node.body.insert(0, self.visit_Assign(same))
        return node


_implicit_cvt = interpreter._implicit_cvt


def _converted(arg):
    """Return an argument as the interpreter does, with its extent or its width."""
    made = _implicit_cvt(arg)
    if isinstance(arg, int) and not isinstance(arg, bool):
        # The interpreter holds what is between 2**31 and 2**32 in 32 bits and calls it int64.
        made.handle.data = made.handle.data.astype(interpreter._get_np_dtype(made.dtype))
    elif isinstance(arg, torch.Tensor):
        made.handle.attr[_FROM] = Extent.of(arg)
    return made


_patch_lang = interpreter._patch_lang
_ALL = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})


def _patch_lang_once(fn):
    """Patch the language for a launch, and not again for each function that it calls."""
    if _current.is_patched:
        return interpreter._LangPatchScope()
    _current.is_patched = True
    return _patch_lang(_ALL)


@contextmanager
def checked_launches() -> Iterator[None]:
    """Check all launches meanwhile."""
    builder = interpreter.interpreter_builder
    plain, options = type(builder), builder.options
    builder.__class__ = _Builder
    # Whether numbers overflow is computed for an assert that is off.
    builder.options = replace(options, sanitize_overflow=False)
    try:
        with (
            mock.patch.object(interpreter, "_implicit_cvt", _converted),
            mock.patch.object(interpreter, "_patch_lang", _patch_lang_once),
            mock.patch.object(interpreter, "GridExecutor", _Executor),
            mock.patch.object(interpreter.FunctionRewriter, "ast_transformer", _Transformer()),
            mock.patch.object(interpreter.InterpretedFunction, "rewritten_fn", _rewritten),
        ):
            yield
    finally:
        builder.__class__, builder.options = plain, options


_rewritten: dict[Callable[..., Any], Callable[..., Any]] = {}
"""Kept from one test to the next: source is the same."""


def are_checked() -> bool:
    """Return whether launches are checked now, and told to who listens."""
    return interpreter.GridExecutor is _Executor


@contextmanager
def listening(listener: Callable[..., None]) -> Iterator[None]:
    """Have `listener` called with executor, arguments and keywords before each launch."""
    before, _current.listener = _current.listener, listener
    try:
        yield
    finally:
        _current.listener = before


@contextmanager
def reaching(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """Let kernels reach these tensors by their addresses, and check them as arguments."""
    before, _current.reached = _current.reached, {one.data_ptr(): Extent.of(one) for one in tensors}
    try:
        yield
    finally:
        _current.reached = before
