"""Opcodes as integers of compiled code."""

from __future__ import annotations

from starc.backend.program import Opcode

OP_LOAD = int(Opcode.LOAD)
OP_STORE = int(Opcode.STORE)
OP_PUT = int(Opcode.PUT)
OP_GET = int(Opcode.GET)
OP_SIGNAL = int(Opcode.SIGNAL)
OP_WAIT = int(Opcode.WAIT)
OP_MATRIX = int(Opcode.MATRIX)
OP_VECTOR = int(Opcode.VECTOR)
OP_DELAY = int(Opcode.DELAY)
OP_LOOP = int(Opcode.LOOP)
OP_END_LOOP = int(Opcode.END_LOOP)
OP_IF = int(Opcode.IF)
OP_ACQUIRE = int(Opcode.ACQUIRE)
OP_RELEASE = int(Opcode.RELEASE)
