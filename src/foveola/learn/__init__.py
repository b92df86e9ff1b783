"""Learning from the line: what comes back from factories becomes a better artefact."""
