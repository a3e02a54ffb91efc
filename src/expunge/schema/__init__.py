"""What the columns of a table are, declared from public knowledge, and encoding by it."""

from expunge.schema.drafting import Draft, draft
from expunge.schema.encoding import Counts, EncodedTables, Encoder, parse_keys
from expunge.schema.model import Amount, Categorical, Classes, Date, Hashed, Key, Numeric, Schema, Text
from expunge.schema.tables import Broken, OnError
from expunge.schema.toml import parse_schema, read_schema, schema_toml

__all__ = [
    "Amount", "Broken", "Categorical", "Classes", "Counts", "Date", "Draft", "EncodedTables", "Encoder", "Hashed",
    "Key", "Numeric", "OnError", "Schema", "Text", "draft", "parse_keys", "parse_schema", "read_schema", "schema_toml",
]  # fmt: skip
