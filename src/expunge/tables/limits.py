"""How much is read together: a small file that is made for it could otherwise fill any memory."""

BLOCK = 2**22
"""How many bytes of a text are read at a time."""
LONGEST = 2**24
"""How many bytes a line, or a value, may have."""
MOST_COLUMNS = 2**17
"""How many columns a table may have."""
BUDGET = 2**27
"""How many bytes the rows of a record batch may have."""
MOST_TEXT = 2**28
"""How many bytes the texts of a column may have that are made into an array together."""
UNPACKED = 2**28
"""How many bytes a batch of an Arrow file may have when it is unpacked; more only if the file is large itself."""
UNPACKED_TIMES = 16
"""How many times larger than the file it may be then."""
