"""How compiled code sees the state: one pointer to the addresses of all arrays.

``handle(state)`` is what compiled functions are called with. Inside them ``s.events`` is an array
over the memory of the state's field; a call between functions passes one pointer, where a tuple of
arrays would pass some hundred values. Plain Python runs the same source on the ``State`` itself.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, intrinsic, models, typeof_impl
from numba.np import numpy_support

from starc.simulator.core.extension import (
    get_or_insert_function,
    infer_getattr,
    ir,
    lower_getattr_generic,
    make_array,
    pack_array,
    populate_array,
    register_model,
    unbox,
)
from starc.simulator.state.arrays import FIELDS, State

_NAMES: Final = tuple(FIELDS)

# Compiled code never asks for the length of an array. With 0 the correction of negative indices,
# which there are none of, folds away.
_LENGTH: Final = 0


class StateType(types.Type):
    """The numba type of a state."""

    def __init__(self) -> None:
        super().__init__(name="StarcState")


STATE_TYPE: Final = StateType()


class Handle:
    """A state as compiled functions take it; it keeps the arrays alive."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.addresses = np.array([array.ctypes.data for array in state], dtype=np.int64)
        self.address = int(self.addresses.ctypes.data)


def handle(state: State) -> Handle:
    """The handle of a state. Raises ``TypeError`` where an array is not as ``FIELDS`` says."""
    for name, array in zip(_NAMES, state, strict=True):
        if array.dtype != FIELDS[name].dtype or not array.flags.c_contiguous or array.ndim != 1:
            raise TypeError(f"state field {name}: {array.dtype}, {array.shape}")
    return Handle(state)


@typeof_impl.register(Handle)
def _typeof(value: Handle, context: Any) -> StateType:
    return STATE_TYPE


@register_model(StateType)
class _StateModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(8).as_pointer())


@unbox(StateType)
def _unbox(kind: Any, value: Any, c: Any) -> NativeValue:
    address = c.pyapi.object_getattr_string(value, "address")
    number = c.pyapi.long_as_longlong(address)
    c.pyapi.decref(address)
    return NativeValue(c.builder.inttoptr(number, ir.IntType(8).as_pointer()))


def _array_type(name: str) -> Any:
    return types.Array(numpy_support.from_dtype(FIELDS[name].dtype), 1, "C")


class StateAttributes(AttributeTemplate):
    """``s.name`` is the array of that field."""

    key = StateType

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return _array_type(attr) if attr in FIELDS else None


def _lower(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    array_type = _array_type(attr)
    array = make_array(array_type)(context, builder)
    addresses = builder.bitcast(value, ir.IntType(64).as_pointer())
    slot = builder.gep(addresses, [ir.Constant(ir.IntType(64), _NAMES.index(attr))])
    address = builder.load(slot)
    # Arrays stay where they are as long as compiled code runs, so an address is loaded once.
    address.set_metadata("invariant.load", builder.module.add_metadata([]))
    data = builder.inttoptr(address, array.data.type)
    item = context.get_constant(types.intp, FIELDS[attr].dtype.itemsize)
    populate_array(
        array,
        data=data,
        shape=pack_array(builder, [context.get_constant(types.intp, _LENGTH)]),
        strides=pack_array(builder, [item]),
        itemsize=item,
        meminfo=None,
    )
    return array._getvalue()


def _prefetch(context: Any, array: Any, index: Any) -> Any:

    def lower(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        value = make_array(kind)(target, builder, arguments[0])
        pointer = builder.gep(value.data, [arguments[1]])
        pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
        flag = ir.IntType(32)
        function = get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        builder.call(function, [pointer, flag(1), flag(3), flag(1)])
        return target.get_dummy_value()

    return types.void(array, types.int64), lower


# ``prefetch(array, index)`` has the host fetch the cache line of an element that is needed soon.
prefetch: Any = intrinsic(_prefetch)


infer_getattr(StateAttributes)
lower_getattr_generic(StateType)(_lower)
