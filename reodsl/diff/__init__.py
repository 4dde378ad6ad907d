"""The difference of two specs or runs in meaning: settings, work that is shared, and metrics side by side."""
