"""Data: questions tables from generated tasks, files, hubs and packages, checked and compared."""
