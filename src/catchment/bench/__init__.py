"""Plain values: queries, windows, plans. No I/O."""
