"""Kernel bodies: what each kind of launch becomes as instructions of a workgroup, a file a kind."""
