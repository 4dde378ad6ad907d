"""What a model folder holds, and what is said of one that does not: names and words, without reading anything."""

from __future__ import annotations

INCOMPLETE = "a model folder holds config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
UNREAD = "that is never read, because unpickling runs code"
CONVERT = "convert them where you trust them: `model.save_pretrained(FOLDER, safe_serialization=True)`"
