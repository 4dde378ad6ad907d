"""Models and tokenizers: built from a description, loaded from a local folder, saved for transformers."""
