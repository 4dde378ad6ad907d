"""Processes of a machine: their time, memory, folders and placement, and how they find each other."""
