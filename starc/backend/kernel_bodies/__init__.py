"""Kernel bodies: what each kind of launch becomes as instructions of a workgroup, one file a kind."""
