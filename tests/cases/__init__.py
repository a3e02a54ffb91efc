"""What several tests use, and what they share with the benchmarks: problems, stories, and mistakes on purpose."""
