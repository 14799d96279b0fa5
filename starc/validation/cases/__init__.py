"""One module a kind of file: how it is read, and how its rows are simulated."""
