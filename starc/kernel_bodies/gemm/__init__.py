"""Matrix products: alone, and exchanging data with their peers while they compute."""
