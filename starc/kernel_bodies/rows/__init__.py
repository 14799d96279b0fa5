"""What works on tiles of rows: elementwise chains, norms, appends to caches, gathers of rows."""
