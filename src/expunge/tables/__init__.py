"""Tables as people have them: CSV, JSON lines, Parquet, Arrow and data frames."""
