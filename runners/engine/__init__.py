"""Rollout engines behind one protocol: prompts in, sampled responses and forced answers out."""
