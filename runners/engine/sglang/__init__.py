"""The SGLang rollout engine: servers that are started, fed, watched and ended from here."""
