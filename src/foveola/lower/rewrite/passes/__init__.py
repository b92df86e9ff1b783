"""One pass per file: each yields replacements of a graph, and changes nothing itself."""
