"""The report: tables, charts and one offline page, from artifacts."""
