"""A call of ``attention``: its heads, what its queries see, and its KV cache."""

from __future__ import annotations

from dataclasses import dataclass

from starc.diagnostics import Location
from starc.dialects import nn
from starc.frontend.call_arguments import CallArguments
from starc.frontend.layer_body import Tensor
from starc.frontend.signatures import BoundCall
from starc.frontend.syntax import Identifier


@dataclass(frozen=True)
class _Heads:
    """Heads of queries, those of keys and values, and features of each."""

    queries: int
    keys: int
    dim: int


@dataclass(frozen=True)
class _Visibility:
    """The window of nearest positions, and how many of the first ones are kept beside it."""

    window: int | None
    keep: int | None


@dataclass(frozen=True)
class _Inputs:
    q: Tensor
    k: Tensor
    v: Tensor


def build_attention(layer: CallArguments, bound: BoundCall) -> Tensor | None:
    """The operation with the caches that its keys and values are appended to; None, reported, if
    something in the call is wrong."""
    location = bound.call.location
    q, k, v = (layer.tensor(name, bound) for name in "qkv")
    heads = _heads(layer, bound)
    prefix = layer.name(bound) if "name" in bound.arguments else Identifier("", location)
    if heads is None or prefix is None:
        return None
    scale: float | None = heads.dim**-0.5
    if "scale" in bound.arguments:
        scale = layer.real("scale", bound)
    sees = _visibility(layer, bound)
    if heads.queries % heads.keys:
        layer.problems.report(
            f"heads = {heads.queries} is not a multiple of kv_heads = {heads.keys}", location
        )
        return None
    if q is None or k is None or v is None or scale is None:
        return None
    inputs = _Inputs(q, k, v)
    if not _have_features(layer, bound, inputs, heads) or sees is None:
        return None
    appended = _append(layer, inputs, heads, prefix, location)
    if appended is None:
        return None
    sink: Tensor | None = None
    if "sink" in bound.flags:
        name = Identifier(f"{prefix.text}_sink".lstrip("_"), prefix.location)
        sink = layer.body.parameter(name, (heads.queries,), location)
        if sink is None:
            return None
    op = nn.AttentionOp(
        q.value,
        *(tensor.value for tensor in appended),
        head_dim=heads.dim,
        start=layer.body.workload.start,
        scale=scale,
        causal="causal" in bound.flags,
        type=q.type,
        window=sees.window,
        keep=sees.keep,
        sink=sink.value if sink is not None else None,
    )
    return layer.body.emit(op, location, prefix.text or "attention")


def _heads(layer: CallArguments, bound: BoundCall) -> _Heads | None:
    location = bound.call.location
    heads = layer.size("heads", bound, location)
    kv_heads = layer.size("kv_heads", bound, location)
    head_dim = layer.size("head_dim", bound, location)
    if heads is None or kv_heads is None or head_dim is None:
        return None
    return _Heads(heads, kv_heads, head_dim)


def _have_features(layer: CallArguments, bound: BoundCall, inputs: _Inputs, heads: _Heads) -> bool:
    """Whether queries, keys and values are as wide as their heads; reported where not."""
    fit = True
    for name, tensor, count_name, count in (
        ("q", inputs.q, "heads", heads.queries),
        ("k", inputs.k, "kv_heads", heads.keys),
        ("v", inputs.v, "kv_heads", heads.keys),
    ):
        if tensor.shape[-1] != count * heads.dim:
            layer.problems.report(
                f"{name} has {tensor.shape[-1]} features, but {count_name} * head_dim = "
                f"{count} * {heads.dim} = {count * heads.dim}",
                bound.arguments[name].location,
            )
            fit = False
    return fit


def _append(
    layer: CallArguments, inputs: _Inputs, heads: _Heads, prefix: Identifier, location: Location
) -> tuple[Tensor, Tensor] | None:
    """Keys and values behind those of the steps before, each in a cache of the attention's."""
    caches = [
        Identifier(f"{prefix.text}_{part}_cache".lstrip("_"), prefix.location) for part in "kv"
    ]
    if caches[0].text in layer.body.caches:
        taken = layer.body.names[caches[0].text]
        given = f"named '{prefix.text}'" if prefix.text else "without a name"
        layer.problems.report(
            f"the layer '{layer.layer.name.text}' has two attentions {given}; the first is in "
            f"line {taken.line}",
            prefix.location,
            hint='give this one a name of its own, for its KV cache: name = "..."',
        )
        return None
    keys = layer.body.append(caches[0], inputs.k, heads.keys, heads.dim, location)
    values = layer.body.append(caches[1], inputs.v, heads.keys, heads.dim, location)
    return None if keys is None or values is None else (keys, values)


def _visibility(layer: CallArguments, bound: BoundCall) -> _Visibility | None:
    """What a query sees; None, reported, where that makes no sense."""
    arguments = bound.arguments
    found = {
        name: layer.size(name, bound, arguments[name].location) if name in arguments else None
        for name in ("window", "keep")
    }
    sees = all(found[name] is not None for name in found if name in arguments)
    if "window" in arguments and "causal" not in bound.flags:
        layer.problems.report(
            "a window needs causal: it is the nearest positions up to the query's own",
            arguments["window"].location,
            hint="attention(q, k, v, causal, window = ...)",
        )
        sees = False
    if "keep" in arguments and "window" not in arguments:
        layer.problems.report(
            "keep needs a window: without one no position is left out",
            arguments["keep"].location,
            hint="attention(q, k, v, causal, window = ..., keep = ...)",
        )
        sees = False
    return _Visibility(found["window"], found["keep"]) if sees else None
