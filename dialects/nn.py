"""The ``nn`` dialect: a transformer model as layers over whole tensors.

A module holds **parameters** (weights) and **states** (KV caches) as symbols, one ``func.func`` a
kind of layer, and a **stack** that says which kinds run, in order, and how often. Activations are
``[batch, query, feature]``, caches ``[batch, kv_head, position, head_dim]``, weights of linear
operations ``[in, out]``. Operations of a layer are values; ``nn.append`` alone changes a state, and
the order of the block is the order of effects.

The same operations stand on global types, on types with a sharding encoding and, after
localisation, on the local types of one device. A verifier therefore states the relations between
its operands that hold in all three cases, and those of whole tensors only where no type has an
encoding; what an encoding allows is a sharding rule, not a verifier.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from starc.dialects.nn_attention import AttentionOp, LseFinishOp, PartialAttentionOp
from starc.dialects.nn_elements import AddOp, ElementwiseOp, GeluOp, MulOp, SiluOp
from starc.dialects.nn_ends import EmbeddingOp, LastTokenOp
from starc.dialects.nn_linear import LinearOp
from starc.dialects.nn_model import ModelFacts
from starc.dialects.nn_requirements import FloatTensor, I32Tensor
from starc.dialects.nn_rows import (
    NormOp,
    NormScaleOp,
    RmsNormOp,
    RopeOp,
    ScaleColumnsOp,
    ScaleRowsOp,
    SumSquaresOp,
)
from starc.dialects.nn_storage import AppendOp, ParameterOp, ReadOp, StackOp, StateOp

# The operations lie by family in nn_*.py; their users take them from here.
__all__ = [
    "AddOp",
    "AppendOp",
    "AttentionOp",
    "ElementwiseOp",
    "EmbeddingOp",
    "FloatTensor",
    "GeluOp",
    "I32Tensor",
    "LastTokenOp",
    "LinearOp",
    "LseFinishOp",
    "ModelFacts",
    "MulOp",
    "Nn",
    "NormOp",
    "NormScaleOp",
    "ParameterOp",
    "PartialAttentionOp",
    "ReadOp",
    "RmsNormOp",
    "RopeOp",
    "ScaleColumnsOp",
    "ScaleRowsOp",
    "SiluOp",
    "StackOp",
    "StateOp",
    "SumSquaresOp",
]

Nn = Dialect(
    "nn",
    [
        ParameterOp,
        StateOp,
        StackOp,
        ReadOp,
        AppendOp,
        LinearOp,
        AttentionOp,
        PartialAttentionOp,
        LseFinishOp,
        RmsNormOp,
        SumSquaresOp,
        NormScaleOp,
        ScaleColumnsOp,
        ScaleRowsOp,
        RopeOp,
        SiluOp,
        GeluOp,
        AddOp,
        MulOp,
        EmbeddingOp,
        LastTokenOp,
    ],
    [],
)
