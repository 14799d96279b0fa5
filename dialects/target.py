"""The target of a module, as an attribute on it.

    module attributes {dlti.target_system_spec = #dlti.target_system_spec<
        "starc" = #dlti.target_device_spec<"base" = "mi300x-cpx", "gpus" = 8 : i64>>}

``base`` names a machine whose description holds where nothing else is said; the other entries are
fields of ``Target`` that differ from it, which is also how a test writes a toy machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    BoolAttr,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    StringAttr,
)
from xdsl.dialects.dlti import (
    DataLayoutEntryAttr,
    DLTIEntryMap,
    MapAttr,
    TargetDeviceSpecAttr,
    TargetSystemSpecAttr,
)
from xdsl.ir import Attribute

from starc.diagnostics import Diagnostic, InputError
from starc.targets.default import DEFAULT_TARGET
from starc.targets.loader import described_target, load_target
from starc.targets.target import Target

ATTRIBUTE: Final = "dlti.target_system_spec"

_KEY: Final = "starc"


def set_target(module: ModuleOp, target: Target) -> None:
    """Puts a target on a module, in place of one that may be there."""
    module.attributes[ATTRIBUTE] = encode(target)


def has_target(module: ModuleOp) -> bool:
    """Whether a module says what machine it is for."""
    return ATTRIBUTE in module.attributes


def target_of(module: ModuleOp) -> Target:
    """The target that stands on a module; without one the module is for ``DEFAULT_TARGET``.

    Raises ``InputError`` for an attribute that does not describe a target.
    """
    attribute = module.attributes.get(ATTRIBUTE)
    return load_target(DEFAULT_TARGET) if attribute is None else decode(attribute)


def encode(target: Target) -> TargetSystemSpecAttr:
    """The attribute: the machine that the target is made from, its GPUs, and what differs. A target
    of an unknown product has every field."""
    device = TargetDeviceSpecAttr.new([_entries(_differences(target))])
    return TargetSystemSpecAttr.new(
        [ArrayAttr([DataLayoutEntryAttr.new([StringAttr(_KEY), device])])]
    )


def _differences(target: Target) -> dict[str, Any]:
    values = target.to_dict()
    del values["warnings"]
    for base in (target.name, f"{target.product}-{target.mode}"):
        for gpus in (target.gpus, None):
            try:
                known = load_target(base, gpus).to_dict()
            except InputError:
                continue
            changed = {key: value for key, value in values.items() if value != known[key]}
            # With a mesh, the base is a whole node (``described_target``).
            if gpus is None or "mesh" not in changed:
                return {"base": base, "gpus": target.gpus, **changed}
    return values


def decode(attribute: Attribute) -> Target:
    """The target that an attribute describes. Raises ``InputError`` where it does not."""
    if not isinstance(attribute, TargetSystemSpecAttr):
        raise InputError(Diagnostic("the target must be a #dlti.target_system_spec"))
    try:
        device = attribute[_KEY]
    except KeyError:
        raise InputError(Diagnostic(f"the target specification has no '{_KEY}' entry")) from None
    values = _plain(device)
    if not isinstance(values, dict):
        raise InputError(Diagnostic("the target must be a #dlti.target_device_spec"))
    return described_target(cast("dict[str, Any]", values))


def _entries(values: Mapping[str, Any]) -> ArrayAttr[DataLayoutEntryAttr]:
    return ArrayAttr(
        [DataLayoutEntryAttr.new([StringAttr(key), _attr(value)]) for key, value in values.items()]
    )


def _attr(value: Any) -> Attribute:
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, 64)
        case float():
            return FloatAttr(value, Float64Type())
        case str():
            return StringAttr(value)
        case Mapping():
            return MapAttr.new([_entries(cast("Mapping[str, Any]", value))])
        case _:
            return ArrayAttr([_attr(item) for item in value])


def _plain(attribute: Attribute) -> Any:
    match attribute:
        case IntegerAttr(type=IntegerType(width=width)) if width.data == 1:
            return bool(attribute.value.data)
        case IntegerAttr():
            return attribute.value.data
        case FloatAttr():
            return attribute.value.data
        case StringAttr():
            return attribute.data
        case ArrayAttr():
            return [_plain(item) for item in attribute]
        case DLTIEntryMap():
            return {
                entry.key.data: _plain(entry.value)
                for entry in attribute.entries
                if isinstance(entry.key, StringAttr)
            }
        case _:
            raise InputError(Diagnostic(f"a target cannot hold {attribute}"))
