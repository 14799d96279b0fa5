"""Simulated against measured: rows, the files that hold them, baselines and the report."""
