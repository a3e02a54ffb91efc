"""How noise is spread over the sums: one file for each mechanism. (docs/guarantee.md#mechanisms)"""
