"""Where the user wrote what an operation stands for."""

from __future__ import annotations

from xdsl.dialects.builtin import ArrayAttr, CallSiteLoc, FileLineColLoc, FusedLoc, NameLoc
from xdsl.ir import Attribute, Operation

from starc.diagnostics import Location


def location_of_attribute(attribute: Attribute) -> Location | None:
    """The file position in an xDSL location: the first that a fused or named one holds."""
    match attribute:
        case FileLineColLoc():
            return Location(attribute.filename.data, attribute.line.data, attribute.column.data)
        case NameLoc():
            return location_of_attribute(attribute.location)
        case CallSiteLoc():
            return location_of_attribute(attribute.callee)
        case FusedLoc(locations=ArrayAttr(data=parts)):
            found = (location_of_attribute(part) for part in parts)
            return next((location for location in found if location is not None), None)
        case _:
            return None


def location_of(op: Operation) -> Location | None:
    """Where the user wrote what ``op`` stands for; None if unknown."""
    return location_of_attribute(op.location)
