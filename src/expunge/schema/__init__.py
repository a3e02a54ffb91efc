"""What the columns of a table are, said once and in public, and tables turned into records by it."""
