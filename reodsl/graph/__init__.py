"""The task graph: a spec lowered to tasks, each with what its result depends on."""
