"""What a model folder holds, and what is said of one that does not: names and words, without reading anything."""

from __future__ import annotations

INCOMPLETE = "a model folder holds config.json, model.safetensors, tokenizer.json and tokenizer_config.json"
AGAIN = "copy or download it again, or write it with `save_pretrained`"
TOGETHER = "take config.json and the weights from one and the same model, whole"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
UNREAD = "that is never read, because unpickling runs code"
CONVERT = "convert them where you trust them: `model.save_pretrained(FOLDER, safe_serialization=True)`"
