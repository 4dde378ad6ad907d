"""Processes of a machine: their time, memory, folders, places and how they find each other."""
