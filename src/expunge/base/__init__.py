"""What all other packages use: errors, types, the grid, columns, wording. NumPy and SciPy only."""
