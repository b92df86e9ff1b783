"""The loop closes: records of a line become a better checkpoint, a bundle, and new weights of a server that runs."""
