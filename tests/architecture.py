"""The source of a model of a few thousand parameters, in the words of the language."""

ARCHITECTURE = """architecture(
    family: qwen3,
    hidden: 16,
    layers: 1,
    heads: 2,
    kv_heads: 1,
    head_dim: 8,
    intermediate: 16,
    tie_embeddings: true,
    tokenizer: chain_words,
  )"""
