"""Looking on while a run goes: its state out of the store, and that state as lines for a terminal of any width."""
