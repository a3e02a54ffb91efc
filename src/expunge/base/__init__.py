"""What all rooms stand on: errors, types, the grid, columns, words. NumPy and SciPy only."""
