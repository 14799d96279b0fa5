"""Parts of ``lower-to-isa``."""
