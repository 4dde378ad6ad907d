"""The SGLang rollout engine: servers of their own that are started, fed, watched and ended from here."""
