"""`reodsl view`: a page over a store, with its runs, their curves as they grow, and every response."""
