"""What the core uses of numba's extension interface and of llvmlite, which have no types."""

from __future__ import annotations

from typing import Any, Final

import llvmlite.ir  # pyright: ignore[reportMissingTypeStubs]
import numba.core.cgutils
import numba.core.typing.templates
import numba.extending
import numba.np.arrayobj

_arrays: Any = numba.np.arrayobj
_builder: Any = numba.core.cgutils
_templates: Any = numba.core.typing.templates
_extending: Any = numba.extending

ir: Final[Any] = llvmlite.ir
make_array: Final[Any] = _arrays.make_array
populate_array: Final[Any] = _arrays.populate_array
pack_array: Final[Any] = _builder.pack_array
get_or_insert_function: Final[Any] = _builder.get_or_insert_function
infer_getattr: Final[Any] = _templates.infer_getattr
lower_getattr_generic: Final[Any] = _extending.lower_getattr_generic
register_model: Final[Any] = _extending.register_model
unbox: Final[Any] = _extending.unbox
