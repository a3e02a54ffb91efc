"""How something is learned: losses, domains, one file for each solver, and plans."""
