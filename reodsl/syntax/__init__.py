"""Text to syntax tree and back: reading, parsing with recovery, and the canonical layout."""
