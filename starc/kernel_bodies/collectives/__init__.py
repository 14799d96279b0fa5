"""Collective launches: rings in closed form, and the blocks of a schedule for all others."""
