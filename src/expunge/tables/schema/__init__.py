"""What the columns of a table are, declared from public knowledge, and encoding by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expunge.base.lazy import lazily

if TYPE_CHECKING:
    from expunge.tables.schema.columns import Amount, Categorical, Classes, Date, Hashed, Key, Numeric, Schema, Text
    from expunge.tables.schema.drafting import Draft, draft
    from expunge.tables.schema.encoding import Counts, EncodedTables, Encoder
    from expunge.tables.schema.toml import parse_schema, read_schema, schema_toml
    from expunge.tables.schema.values import parse_keys
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "columns": "Amount Categorical Classes Date Hashed Key Numeric Schema Text",
            "drafting": "Draft draft",
            "encoding": "Counts EncodedTables Encoder",
            "toml": "parse_schema read_schema schema_toml",
            "values": "parse_keys",
        },
    )

__all__ = [
    "Amount", "Categorical", "Classes", "Counts", "Date", "Draft", "EncodedTables", "Encoder", "Hashed",
    "Key", "Numeric", "Schema", "Text", "draft", "parse_keys", "parse_schema", "read_schema", "schema_toml",
]  # fmt: skip
