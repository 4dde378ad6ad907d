"""A language server: from an editor's texts and positions to diagnostics, hovers, definitions and completions."""
