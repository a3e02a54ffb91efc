"""What the columns of a table are, declared from public knowledge, and encoding by it."""

from expunge.schema.encoding import Counts, EncodedTables, Encoder, parse_keys
from expunge.schema.model import Amount, Categorical, Classes, Date, Hashed, Key, Numeric, Schema, Text
from expunge.schema.tables import Broken, OnError
from expunge.schema.toml import parse_schema, read_schema, schema_toml

__all__ = [
    "Amount", "Broken", "Categorical", "Classes", "Counts", "Date", "EncodedTables", "Encoder", "Hashed", "Key",
    "Numeric", "OnError", "Schema", "Text", "parse_keys", "parse_schema", "read_schema", "schema_toml",
]  # fmt: skip
