"""The report: artifacts in; tables, charts and one offline page out."""
