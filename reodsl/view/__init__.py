"""`reodsl view`: a page on this machine over a store, with its runs, their curves as they grow, and every response."""
