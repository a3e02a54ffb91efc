"""Where records lie, by place; how they are found, summed and changed."""
